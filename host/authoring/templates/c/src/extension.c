{% set object = w.keyvalue or w.clock %}
{% set greets = h.card or h.live_card or h.reads or h.extended_card or h.response %}
{% set builds = (w.parameters and greets) or (h.response and object) %}
{% if h.message or h.reply %}
#define _GNU_SOURCE // memmem
{% endif %}
#include "extension.h"

#include <stdlib.h>
#include <string.h>

// A hook owns its arguments and frees them. What it returns is freed in the same way once the host has read it, by
// functions of the bindings, so that each string in there is a copy.
typedef extension_string_t string;

static const char URI[] = "{{ uri }}";
static const char KEY[] = "{{ name }}";

{% if w.parameters %}
static const char PARAMETER_SCHEMA[] =
    "{\"type\":\"object\",\"properties\":{\"greeting\":{\"type\":\"string\",\"minLength\":1}},"
    "\"additionalProperties\":false}";
{% else %}
static const char PARAMETER_SCHEMA[] = "{\"type\":\"object\",\"additionalProperties\":false}";
{% endif %}
{% if w.random or w.http or w.json_schema or w.session_state or w.task or w.tasks or w.task_resumption or w.agent_steps or w.caller or w.task_metadata or (w.logging and not h.response) %}

// extension.h declares what the host offers. Not used here yet:
{% endif %}
{% if w.logging and not h.response %}
//   wasi_logging_logging_log(WASI_LOGGING_LOGGING_LEVEL_INFO, &context, &message), a line of the host's log, which
//   `annex test` shows when a case fails
{% endif %}
{% if w.random %}
//   wasi_random_random_get_random_u64()
{% endif %}
{% if w.http %}
//   wasi_http_outgoing_handler_handle(request, &options, &response, &error)
{% endif %}
{% if w.json_schema %}
//   annex_extension_json_schema_validate(&schema, &instance, &violations, &error)
{% endif %}
{% if w.session_state %}
//   annex_extension_session_state_get(&key, &value)
{% endif %}
{% if w.task %}
//   annex_extension_task_current(&task)
{% endif %}
{% if w.tasks %}
//   annex_extension_tasks_list(&request, &response, &error)
{% endif %}
{% if w.task_resumption %}
//   annex_extension_task_resumption_resume(&task_id, &error)
{% endif %}
{% if w.agent_steps %}
//   annex_extension_agent_steps_recorded(&steps)
{% endif %}
{% if w.caller %}
//   annex_extension_caller_current(&identity, &error)
{% endif %}
{% if w.task_metadata %}
//   annex_extension_task_metadata_set(&key, &value, &error)
{% endif %}

static void *resize(void *memory, size_t size) {
  memory = realloc(memory, size);
  if (!memory)
    abort();
  return memory;
}

static string copy(const char *text) {
  string result;
  extension_string_dup(&result, text);
  return result;
}

{% if builds %}
static void append_bytes(string *text, const void *bytes, size_t count) {
  text->ptr = resize(text->ptr, text->len + count);
  memcpy(text->ptr + text->len, bytes, count);
  text->len += count;
}

static void append(string *text, const char *more) { append_bytes(text, more, strlen(more)); }

{% if h.response and object %}
// Not `snprintf`: it brings in all of standard input and output.
static void append_number(string *text, uint64_t number) {
  char digits[20];
  char *first = digits + sizeof digits;
  do {
    *--first = '0' + number % 10;
  } while (number /= 10);
  append_bytes(text, first, digits + sizeof digits - first);
}

{% endif %}
{% if w.parameters %}
static void append_quoted(string *json, const string *text) {
  static const char HEX[] = "0123456789abcdef";
  append(json, "\"");
  for (size_t i = 0; i < text->len; i++) {
    uint8_t byte = text->ptr[i];
    const char escaped[] = {'\\', 'u', '0', '0', HEX[byte >> 4], HEX[byte & 15]};
    if (byte < ' ' || byte == '"' || byte == '\\')
      append_bytes(json, escaped, sizeof escaped);
    else
      append_bytes(json, &byte, 1);
  }
  append(json, "\"");
}

static void append_greeting(string *json) {
  string key;
  extension_string_set(&key, "greeting");
  extension_option_string_t greeting;
  wasi_config_store_error_t error;
  if (!wasi_config_store_get(&key, &greeting, &error))
    abort();
  if (!greeting.is_some)
    greeting.val = copy("hello");
  append_quoted(json, &greeting.val);
  extension_string_free(&greeting.val);
}

{% endif %}
{% endif %}
// Called once per load, and again when the config changes: says what the extension is.
bool exports_annex_extension_descriptor_describe(exports_annex_extension_descriptor_extension_descriptor_t *descriptor,
                                                 string *error) {
  string *keys = resize(NULL, sizeof *keys);
  keys[0] = copy(KEY);
  *descriptor = (exports_annex_extension_descriptor_extension_descriptor_t){
      .uri = copy(URI),
      .name = copy("{{ name }}"),
      .version = copy("0.1.0"),
      .description = copy("Says hello."),
      .parameter_schema = {.is_some = true, .val = copy(PARAMETER_SCHEMA)},
      .metadata_keys = {.ptr = keys, .len = 1},
{% if h.output or h.response %}
      .events = EXPORTS_ANNEX_EXTENSION_DESCRIPTOR_EVENT_KINDS_ARTIFACT,
{% endif %}
  };
  return true;
}
{% if h.card %}

// Called once per load: fills the extension's entry on the Agent Card.
bool exports_annex_extension_card_declare(exports_annex_extension_card_declaration_t *declaration, string *error) {
{% if w.parameters %}
  string params = copy("{\"greeting\":");
  append_greeting(&params);
  append(&params, "}");
{% else %}
  string params = copy("{\"greeting\":\"hello\"}");
{% endif %}
  *declaration = (exports_annex_extension_card_declaration_t){.params = {.is_some = true, .val = params}};
  return true;
}
{% endif %}
{% if h.live_card %}

// Called once per load, and again when the entry's seconds are over: fills the extension's entry on the Agent Card.
bool exports_annex_extension_live_card_declare_live(exports_annex_extension_live_card_live_declaration_t *declaration,
                                                    string *error) {
{% if w.parameters %}
  string params = copy("{\"greeting\":");
  append_greeting(&params);
  append(&params, "}");
{% else %}
  string params = copy("{\"greeting\":\"hello\"}");
{% endif %}
  *declaration = (exports_annex_extension_live_card_live_declaration_t){
      .params = {.is_some = true, .val = params},
      .seconds = 60,
  };
  return true;
}
{% endif %}
{% if h.activation %}

// Called once per request that names the URI: takes part, stays out or refuses the request.
// Without it the extension takes part, and a request is one call cheaper.
bool exports_annex_extension_activation_activate(annex_extension_types_request_t *request,
                                                 exports_annex_extension_activation_decision_t *decision,
                                                 annex_extension_types_extension_error_t *error) {
  annex_extension_types_request_free(request);
  *decision = EXPORTS_ANNEX_EXTENSION_ACTIVATION_DECISION_ACTIVE;
  return true;
}
{% endif %}
{% if h.message %}

// Called once per active request: refuses the message, or rewrites its parts with the grant `rewrite-message`.
bool exports_annex_extension_message_check(annex_extension_types_request_t *request, string *message,
                                           exports_annex_extension_message_list_rewrite_t *rewrites,
                                           annex_extension_types_rejection_t *rejection) {
  static const char EMPTY_TEXT[] = "\"text\":\"\"";
  bool is_good = !memmem(message->ptr, message->len, EMPTY_TEXT, strlen(EMPTY_TEXT));
  annex_extension_types_request_free(request);
  extension_string_free(message);
  if (is_good) {
    *rewrites = (exports_annex_extension_message_list_rewrite_t){0};
    return true;
  }
  annex_extension_types_violation_t *violation = resize(NULL, sizeof *violation);
  *violation = (annex_extension_types_violation_t){copy("/message/parts"), copy("a text is empty")};
  rejection->tag = ANNEX_EXTENSION_TYPES_REJECTION_VIOLATIONS;
  rejection->val.violations = (annex_extension_types_list_violation_t){violation, 1};
  return false;
}
{% endif %}
{% if h.state %}

// Called once per active request: checks the metadata that the client sent, returns changes of the session's state.
bool exports_annex_extension_state_validate(annex_extension_types_request_t *request,
                                            exports_annex_extension_state_list_metadata_entry_t *metadata,
                                            exports_annex_extension_state_option_json_t *delta,
                                            annex_extension_types_rejection_t *rejection) {
  delta->is_some = metadata->len > 0;
  if (delta->is_some) {
    string *value = &metadata->ptr[0].value;
    delta->val = *value;
    *value = (string){0};
  }
  annex_extension_types_request_free(request);
  exports_annex_extension_state_list_metadata_entry_free(metadata);
  return true;
}
{% endif %}
{% if h.transition %}

// Called once per turn, before the agent runs: lets it run, lets the task wait or rejects it.
bool exports_annex_extension_transition_begin(annex_extension_types_request_t *request,
                                              exports_annex_extension_transition_beginning_t *beginning,
                                              exports_annex_extension_transition_entry_t *entry, string *error) {
  annex_extension_types_request_free(request);
  exports_annex_extension_transition_beginning_free(beginning);
  entry->tag = EXPORTS_ANNEX_EXTENSION_TRANSITION_ENTRY_PROCEED;
  return true;
}

// Called for each change of the task's state: lets it pass, annotates it, lets the task wait instead or vetoes it.
bool exports_annex_extension_transition_change(exports_annex_extension_transition_state_change_t *change,
                                               exports_annex_extension_transition_ruling_t *ruling, string *error) {
  exports_annex_extension_transition_state_change_free(change);
  ruling->tag = EXPORTS_ANNEX_EXTENSION_TRANSITION_RULING_PASS;
  return true;
}
{% endif %}
{% if h.reply %}

// Called once per turn, before the agent runs: answers in its place, or lets it run.
bool exports_annex_extension_reply_before_agent(annex_extension_types_request_t *request, string *message,
                                                exports_annex_extension_reply_option_ready_answer_t *answer,
                                                string *error) {
  static const char PING[] = "\"text\":\"ping\"";
  answer->is_some = memmem(message->ptr, message->len, PING, strlen(PING)) != NULL;
  annex_extension_types_request_free(request);
  extension_string_free(message);
  if (answer->is_some) {
    string *part = resize(NULL, sizeof *part);
    *part = copy("{\"text\":\"pong\"}");
    answer->val = (exports_annex_extension_reply_ready_answer_t){
        .outcome = EXPORTS_ANNEX_EXTENSION_REPLY_OUTCOME_COMPLETED,
        .parts = {.ptr = part, .len = 1},
        .artifact = {.is_some = true, .val = copy("answer")},
    };
  }
  return true;
}
{% endif %}
{% if h.steering %}

// Called before each call of the model: lets it pass, changes it or fails the task. The second value is a remark for
// the client, which is none here.
bool exports_annex_extension_steering_before_model(
    exports_annex_extension_steering_model_call_t *call,
    exports_annex_extension_steering_tuple2_model_verdict_option_remark_t *result, string *error) {
  exports_annex_extension_steering_model_call_free(call);
  result->f0.tag = EXPORTS_ANNEX_EXTENSION_STEERING_MODEL_VERDICT_PASS;
  result->f1.is_some = false;
  return true;
}

// Called before each call of a tool: lets it pass, changes it, denies it or lets the task wait.
bool exports_annex_extension_steering_before_tool(
    exports_annex_extension_steering_tool_call_t *call,
    exports_annex_extension_steering_tuple2_tool_verdict_option_remark_t *result, string *error) {
  static const char FORBIDDEN[] = "forbidden";
  bool is_forbidden = call->name.len == strlen(FORBIDDEN) && !memcmp(call->name.ptr, FORBIDDEN, call->name.len);
  exports_annex_extension_steering_tool_call_free(call);
  result->f0.tag = EXPORTS_ANNEX_EXTENSION_STEERING_TOOL_VERDICT_PASS;
  if (is_forbidden) {
    result->f0.tag = EXPORTS_ANNEX_EXTENSION_STEERING_TOOL_VERDICT_DENY;
    result->f0.val.deny = copy("this tool is forbidden");
  }
  result->f1.is_some = false;
  return true;
}

// Called for each result of a tool: leaves it or replaces it.
bool exports_annex_extension_steering_after_tool(
    exports_annex_extension_steering_tool_result_t *made,
    exports_annex_extension_steering_tuple2_option_json_option_remark_t *result, string *error) {
  exports_annex_extension_steering_tool_result_free(made);
  result->f0.is_some = false;
  result->f1.is_some = false;
  return true;
}
{% endif %}
{% if h.output %}

// Called for each outgoing event of the kinds that the descriptor names: leaves, replaces, holds back or refuses its
// content. A chunk may end within a word: what is held back comes again with the next chunk.
bool exports_annex_extension_output_revise(exports_annex_extension_output_content_t *content,
                                           exports_annex_extension_output_verdict_t *verdict, string *error) {
  exports_annex_extension_output_content_free(content);
  verdict->tag = EXPORTS_ANNEX_EXTENSION_OUTPUT_VERDICT_LEAVE;
  return true;
}
{% endif %}
{% if h.response %}
{% if w.keyvalue %}

// Counts in the bucket that lives as long as the conversation.
static uint64_t count_answer(void) {
  string context, key;
  extension_string_set(&context, "context");
  extension_string_set(&key, "count");
  wasi_keyvalue_store_own_bucket_t bucket;
  wasi_keyvalue_store_error_t error;
  if (!wasi_keyvalue_store_open(&context, &bucket, &error))
    abort();
  uint64_t count;
  if (!wasi_keyvalue_atomics_increment(wasi_keyvalue_store_borrow_bucket(bucket), &key, 1, &count, &error))
    abort();
  wasi_keyvalue_store_bucket_drop_own(bucket);
  return count;
}
{% endif %}
{% if w.clock %}

static uint64_t seconds_since_1970(void) {
  wasi_clocks_wall_clock_datetime_t now;
  wasi_clocks_wall_clock_now(&now);
  return now.seconds;
}
{% endif %}
{% if w.logging %}

// Writes a line into the host's log. `annex test` shows the lines of a case that fails.
static void log_info(const char *text) {
  string context, message;
  extension_string_set(&context, KEY);
  extension_string_set(&message, text);
  wasi_logging_logging_log(WASI_LOGGING_LOGGING_LEVEL_INFO, &context, &message);
}
{% endif %}

// Called for each outgoing event of the kinds that the descriptor names: adds metadata under the extension's keys.
bool exports_annex_extension_response_respond(exports_annex_extension_response_event_t *event,
                                              exports_annex_extension_response_option_patch_t *patch, string *error) {
  exports_annex_extension_response_event_free(event);
{% if object %}
{% if w.parameters %}
  string value = copy("{\"greeting\":");
  append_greeting(&value);
{% else %}
  string value = copy("{\"greeting\":\"hello\"");
{% endif %}
{% if w.keyvalue %}
  append(&value, ",\"count\":");
  append_number(&value, count_answer());
{% endif %}
{% if w.clock %}
  append(&value, ",\"at\":");
  append_number(&value, seconds_since_1970());
{% endif %}
  append(&value, "}");
{% elif w.parameters %}
  string value = {0};
  append_greeting(&value);
{% else %}
  string value = copy("\"hello\"");
{% endif %}
{% if w.logging %}
  log_info("said hello");
{% endif %}
  exports_annex_extension_response_tuple2_string_json_t *entry = resize(NULL, sizeof *entry);
  *entry = (exports_annex_extension_response_tuple2_string_json_t){copy(KEY), value};
  patch->is_some = true;
  patch->val.metadata = (exports_annex_extension_response_list_tuple2_string_json_t){entry, 1};
  return true;
}
{% endif %}
{% if h.reads %}

// Called once per read of a task, and once per page of a list: adds metadata that this reader alone is shown, or leaves
// tasks out.
bool exports_annex_extension_reads_show(annex_extension_types_request_t *request,
                                        exports_annex_extension_reads_list_shown_task_t *tasks,
                                        exports_annex_extension_reads_list_view_t *views, string *error) {
  views->len = tasks->len;
  views->ptr = tasks->len ? resize(NULL, tasks->len * sizeof *views->ptr) : NULL;
  annex_extension_types_request_free(request);
  exports_annex_extension_reads_list_shown_task_free(tasks);
  for (size_t i = 0; i < views->len; i++) {
{% if w.parameters %}
    string value = {0};
    append_greeting(&value);
{% else %}
    string value = copy("\"hello\"");
{% endif %}
    exports_annex_extension_reads_tuple2_string_json_t *entry = resize(NULL, sizeof *entry);
    *entry = (exports_annex_extension_reads_tuple2_string_json_t){copy(KEY), value};
    views->ptr[i].tag = EXPORTS_ANNEX_EXTENSION_READS_VIEW_ADD;
    views->ptr[i].val.add = (exports_annex_extension_reads_list_tuple2_string_json_t){entry, 1};
  }
  return true;
}
{% endif %}
{% if h.extended_card %}

// Called once per read of the extended Agent Card: changes the extension's own entry for this reader alone.
bool exports_annex_extension_extended_card_show_entry(annex_extension_types_request_t *request,
                                                      exports_annex_extension_extended_card_shown_entry_t *entry,
                                                      exports_annex_extension_extended_card_entry_change_t *change,
                                                      string *error) {
  annex_extension_types_request_free(request);
  exports_annex_extension_extended_card_shown_entry_free(entry);
{% if w.parameters %}
  string params = copy("{\"greeting\":");
  append_greeting(&params);
  append(&params, "}");
{% else %}
  string params = copy("{\"greeting\":\"hello\"}");
{% endif %}
  *change = (exports_annex_extension_extended_card_entry_change_t){.params = {.is_some = true, .val = params}};
  return true;
}
{% endif %}
{% if h.method %}

// Called once per load: names the extension's own methods.
bool exports_annex_extension_method_declare_methods(exports_annex_extension_method_list_declaration_t *methods,
                                                    string *error) {
  exports_annex_extension_method_declaration_t *echo = resize(NULL, sizeof *echo);
  *echo = (exports_annex_extension_method_declaration_t){
      .name = copy("{{ name }}.echo"),
      .description = copy("Returns its parameters."),
  };
  *methods = (exports_annex_extension_method_list_declaration_t){echo, 1};
  return true;
}

// Called for each call of a method: answers or refuses.
bool exports_annex_extension_method_call(annex_extension_types_request_t *request, string *name, string *params,
                                         exports_annex_extension_method_answer_t *answer,
                                         annex_extension_types_rejection_t *rejection) {
  annex_extension_types_request_free(request);
  extension_string_free(name);
  answer->tag = EXPORTS_ANNEX_EXTENSION_METHOD_ANSWER_VALUE;
  answer->val.value = *params;
  return true;
}

// Called for each result of a method that streams; none ends the stream.
bool exports_annex_extension_method_next(exports_annex_extension_method_option_json_t *result,
                                         annex_extension_types_rejection_t *rejection) {
  result->is_some = false;
  return true;
}
{% endif %}
{% if h.client %}

// Called on the calling side before each call: adds the URI and metadata to it, or refuses it.
bool exports_annex_extension_client_before(exports_annex_extension_client_outgoing_t *call,
                                           exports_annex_extension_client_addition_t *addition,
                                           annex_extension_types_rejection_t *rejection) {
  *addition = (exports_annex_extension_client_addition_t){.activate = call->declaration.is_some};
  exports_annex_extension_client_outgoing_free(call);
  return true;
}

// Called on the calling side for each thing that comes back: what it returns is for the program that called.
bool exports_annex_extension_client_after(exports_annex_extension_client_incoming_t *event,
                                          exports_annex_extension_client_option_json_t *result, string *error) {
  result->is_some = event->active && event->metadata.len > 0;
  if (result->is_some) {
    string *value = &event->metadata.ptr[event->metadata.len - 1].f1;
    result->val = *value;
    *value = (string){0};
  }
  exports_annex_extension_client_incoming_free(event);
  return true;
}
{% endif %}
