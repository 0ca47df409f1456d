// The Timestamp extension, version 1: the time at which a message or artifact was made, in its metadata.

#include "extension.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// What a hook returns is freed by the bindings once the host has read it, so that each string in it is a copy.
typedef extension_string_t string;

static const char DEFAULT_URI[] = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";

static const char PARAMETER_SCHEMA[] =
    "{\n"
    "  \"type\": \"object\",\n"
    "  \"properties\": {\n"
    "    \"uri\": {\"type\": \"string\", \"minLength\": 1, \"description\": \"The extension's URI.\"},\n"
    "    \"key\": {\"type\": \"string\", \"minLength\": 1, \"description\": \"The metadata key of the stamp: by default the"
    " URI without its scheme, and `/timestamp`.\"}\n"
    "  },\n"
    "  \"additionalProperties\": false\n"
    "}";

static string copy(const char *text) {
  string result;
  extension_string_dup(&result, text);
  return result;
}

// A parameter as it is in the config. It ends with a zero byte, which its length does not count.
static bool parameter(const char *name, char **result) {
  string key;
  extension_string_set(&key, name);
  extension_option_string_t value;
  wasi_config_store_error_t error;
  if (!wasi_config_store_get(&key, &value, &error)) abort();
  if (value.is_some) *result = strndup((char *)value.val.ptr, value.val.len);
  return value.is_some;
}

static char *uri(void) {
  char *result;
  return parameter("uri", &result) ? result : strdup(DEFAULT_URI);
}

static string key(void) {
  char *result;
  if (parameter("key", &result)) return copy(result);
  char *whole = uri();
  char *scheme_end = strstr(whole, "://");
  char *rest = scheme_end ? scheme_end + strlen("://") : whole;
  result = malloc(strlen(rest) + sizeof "/timestamp");
  return copy(strcat(strcpy(result, rest), "/timestamp"));
}

static void digits(char *end, unsigned number, int count) {
  for (; count > 0; count--, number /= 10) *--end = '0' + number % 10;
}

// The time as JSON, in RFC 3339 with milliseconds. `snprintf` would bring in a file system.
static string now(void) {
  wasi_clocks_wall_clock_datetime_t now;
  wasi_clocks_wall_clock_now(&now);
  time_t seconds = now.seconds;
  struct tm time;
  gmtime_r(&seconds, &time);
  char text[] = "\"0000-00-00T00:00:00.000Z\"";
  digits(text + 5, time.tm_year + 1900, 4);
  digits(text + 8, time.tm_mon + 1, 2);
  digits(text + 11, time.tm_mday, 2);
  digits(text + 14, time.tm_hour, 2);
  digits(text + 17, time.tm_min, 2);
  digits(text + 20, time.tm_sec, 2);
  digits(text + 24, now.nanoseconds / 1000000, 3);
  return copy(text);
}

bool exports_annex_extension_descriptor_describe(exports_annex_extension_descriptor_extension_descriptor_t *descriptor,
                                                 string *error) {
  string *keys = malloc(sizeof *keys);
  *keys = key();
  *descriptor = (exports_annex_extension_descriptor_extension_descriptor_t){
      .uri = copy(uri()),
      .name = copy("timestamp"),
      .version = copy("0.1.0"),
      .description = copy("Adds the time to the metadata of messages and artifacts."),
      .parameter_schema = {.is_some = true, .val = copy(PARAMETER_SCHEMA)},
      .metadata_keys = {.ptr = keys, .len = 1},
      .events = EXPORTS_ANNEX_EXTENSION_DESCRIPTOR_EVENT_KINDS_MESSAGE |
                EXPORTS_ANNEX_EXTENSION_DESCRIPTOR_EVENT_KINDS_STATUS |
                EXPORTS_ANNEX_EXTENSION_DESCRIPTOR_EVENT_KINDS_ARTIFACT,
  };
  return true;
}

// Stamps a message, an artifact, or a status with a message on it. A stamp that is there already stays.
bool exports_annex_extension_response_respond(exports_annex_extension_response_event_t *event,
                                              exports_annex_extension_response_option_patch_t *patch, string *error) {
  string own = key();
  patch->is_some = event->kind != EXPORTS_ANNEX_EXTENSION_RESPONSE_EVENT_KIND_STATUS || event->has_message;
  for (size_t i = 0; i < event->present.len; i++) {
    string there = event->present.ptr[i];
    if (there.len == own.len && !memcmp(there.ptr, own.ptr, own.len)) patch->is_some = false;
  }
  if (patch->is_some) {
    exports_annex_extension_response_tuple2_string_json_t *entry = malloc(sizeof *entry);
    *entry = (exports_annex_extension_response_tuple2_string_json_t){own, now()};
    patch->val.metadata = (exports_annex_extension_response_list_tuple2_string_json_t){.ptr = entry, .len = 1};
  }
  return true;
}

// Stamps what the client sends, when the agent knows stamps.
bool exports_annex_extension_client_before(exports_annex_extension_client_outgoing_t *call,
                                           exports_annex_extension_client_addition_t *addition,
                                           exports_annex_extension_client_rejection_t *rejection) {
  *addition = (exports_annex_extension_client_addition_t){0};
  if (!call->message.is_some || !call->declaration.is_some) return true;
  annex_extension_types_metadata_entry_t *entry = malloc(sizeof *entry);
  *entry = (annex_extension_types_metadata_entry_t){ANNEX_EXTENSION_TYPES_LOCATION_MESSAGE, key(), now()};
  addition->activate = true;
  addition->metadata = (exports_annex_extension_client_list_metadata_entry_t){.ptr = entry, .len = 1};
  return true;
}

// The last stamp on what came back, for the program.
bool exports_annex_extension_client_after(exports_annex_extension_client_incoming_t *event,
                                          exports_annex_extension_client_option_json_t *stamp, string *error) {
  size_t count = event->metadata.len;
  stamp->is_some = event->active && count > 0;
  if (stamp->is_some) stamp->val = event->metadata.ptr[count - 1].f1;
  return true;
}
