"""What can be trained: one file a task, with its data, network, loss, measures and settings."""

from wirebound_lab.tasks.cifar import Cifar
from wirebound_lab.tasks.gpt import TextGPT
from wirebound_lab.tasks.perceptron import Perceptron
from wirebound_lab.tasks.phonemes import Phonemes
from wirebound_lab.tasks.quotes import Quotes
from wirebound_lab.tasks.shuffled import Shuffled
from wirebound_lab.tasks.task import Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (Perceptron, Cifar, Phonemes, Shuffled, TextGPT, Quotes)}
