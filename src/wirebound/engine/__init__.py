"""How the steps of training are taken: by modules, or fused in one native call."""
