/* Learns from a stream, on the board itself: each message over the serial line is a label and one example.
 *
 *   'L' label x[0] x[1] ...    learn from this example; the board answers "learned LOSS"
 *   'P' x[0] x[1] ...          the board answers "label N"
 *   'S'                        keep the state; "saved"
 *
 * One byte for the letter, the label and each input. After a power cut the board goes on from the state that was kept last:
 * there are two slots, and the one that is being written is never the one that is needed.
 */
#include <wirebound_device.h>

#include <network.h>

#if defined(ESP32) || defined(ESP8266) || defined(ARDUINO_ARCH_RP2040)
#include <EEPROM.h>
#define HAS_STORAGE 1
#else
#define HAS_STORAGE 0 /* give wb_storage three functions for the flash or the memory card of your board */
#endif

static uint32_t memory[(NETWORK_MEMORY + 3) / 4];
static wb_context ctx;
static wb_input x[NETWORK_INPUTS];

#if HAS_STORAGE
static int read_slot(void *, uint32_t slot, uint32_t offset, void *bytes, uint32_t size) {
  for (uint32_t i = 0; i < size; i++) ((uint8_t *)bytes)[i] = EEPROM.read((int)(slot * NETWORK_STATE + offset + i));
  return 0;
}

static int write_slot(void *, uint32_t slot, uint32_t offset, const void *bytes, uint32_t size) {
  for (uint32_t i = 0; i < size; i++) EEPROM.write((int)(slot * NETWORK_STATE + offset + i), ((const uint8_t *)bytes)[i]);
  return EEPROM.commit() ? 0 : 1;
}

static const wb_storage storage = {nullptr, read_slot, write_slot, nullptr};
#endif

static void say(wb_status status) {
  Serial.print("error ");
  Serial.println(wb_status_name(status));
}

static void receive(uint8_t *bytes, size_t size) {
  while (size > 0) {
    const size_t here = Serial.readBytes((char *)bytes, size);
    bytes += here;
    size -= here;
  }
}

void setup() {
  Serial.begin(115200);
#if HAS_STORAGE
  EEPROM.begin(2 * NETWORK_STATE);
#endif
  wb_status status = wb_init(&ctx, memory, sizeof memory, &network);
#if NETWORK_HAS_STATE
  if (status == WB_OK) status = wb_load_bytes(&ctx, network_state, sizeof network_state);
#endif
#if HAS_STORAGE
  if (status == WB_OK && wb_load(&ctx, &storage) == WB_BROKEN) status = wb_init(&ctx, memory, sizeof memory, &network);
#endif
  if (status != WB_OK) say(status);
  Serial.println("ready");
}

void loop() {
  uint8_t letter, label;
  receive(&letter, 1);
  if (letter == 'L') {
    receive(&label, 1);
    receive((uint8_t *)x, sizeof x);
    const wb_status status = wb_train_step(&ctx, x, label);
    if (status != WB_OK) return say(status);
    Serial.print("learned ");
    Serial.println((double)ctx.loss / WB_NUMBER(1.0));
  } else if (letter == 'P') {
    receive((uint8_t *)x, sizeof x);
    Serial.print("label ");
    Serial.println(wb_predict(&ctx, x));
  } else if (letter == 'S') {
#if HAS_STORAGE
    const wb_status status = wb_save(&ctx, &storage);
    if (status != WB_OK) return say(status);
    Serial.println("saved");
#else
    Serial.println("error no storage");
#endif
  }
}
