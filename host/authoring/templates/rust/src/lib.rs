{% set counts = w.keyvalue or w.clock %}
{% set parameters = "Parameters" if w.parameters else "NoParameters" %}
{% set greeting = "&parameters.greeting" if w.parameters else "GREETING" %}
{% set greets = h.card or h.live_card or h.reads or h.extended_card or h.response %}
{% set ns = namespace(names=[], line="   ", first=true) %}
{% for pair in [
  ["Activation", h.activation], ["Addition", h.client], ["Answer", h.method], ["Beginning", h.transition],
  ["Card", h.card], ["Client", h.client], ["Content", h.output], ["Decision", h.activation], ["Declaration", h.card],
  ["Descriptor", true], ["Entry", h.transition], ["EntryChange", h.extended_card], ["Event", h.response], ["EventKinds", h.output or h.response],
  ["ExtendedCard", h.extended_card], ["Extension", true], ["ExtensionError", h.activation], ["Incoming", h.client],
  ["Json", h.message or h.state or h.reply or h.method or h.client],
  ["LiveCard", h.live_card], ["LiveDeclaration", h.live_card], ["Message", h.message], ["MetadataEntry", h.state], ["Method", h.method], ["MethodDeclaration", h.method],
  ["NoParameters", not w.parameters], ["Outgoing", h.client], ["Output", h.output], ["Patch", h.response],
  ["Reads", h.reads], ["ReadyAnswer", h.reply], ["Rejection", h.message or h.state or h.method or h.client],
  ["Remark", h.steering], ["Reply", h.reply],
  ["Request", h.activation or h.message or h.state or h.transition or h.reply or h.reads or h.extended_card or h.method], ["Response", h.response],
  ["Rewrite", h.message], ["Ruling", h.transition], ["ShownEntry", h.extended_card], ["ShownTask", h.reads], ["State", h.state],
  ["StateChange", h.transition], ["Steering", h.steering], ["ToolCall", h.steering], ["ToolVerdict", h.steering],
  ["Transition", h.transition], ["Verdict", h.output], ["View", h.reads], ["Violation", h.message], ["clock", h.response and w.clock],
  ["json", greets], ["keyvalue", h.response and w.keyvalue], ["log", h.response and w.logging],
] if pair[1] %}
{% set ns.names = ns.names + [pair[0]] %}
{% endfor %}
//! Says hello. Each hook is a trait, and `annex_sdk::export!` lists the hooks of the component.

{% if (ns.names | join(", ") | length) <= 80 %}
use annex_sdk::{ {{- ns.names | join(", ") -}} };
{% else %}
use annex_sdk::{
{% for name in ns.names %}
{% if (ns.line ~ " " ~ name ~ ",") | length > (100 if loop.last and ns.first else 99) %}
{{ ns.line }}
{% set ns.first = false %}
{% set ns.line = "   " %}
{% endif %}
{% set ns.line = ns.line ~ " " ~ name ~ "," %}
{% endfor %}
{{ ns.line }}
};
{% endif %}
{% if w.parameters and h.response and counts %}
use serde::{Deserialize, Serialize};
{% elif w.parameters %}
use serde::Deserialize;
{% elif h.response and counts %}
use serde::Serialize;
{% endif %}
{% if h.message %}
use serde_json::Value;
{% endif %}

{% if w.parameters %}
const PARAMETER_SCHEMA: &str = r#"{
  "type": "object",
  "properties": {"greeting": {"type": "string", "minLength": 1}},
  "additionalProperties": false
}"#;
{% else %}
const PARAMETER_SCHEMA: &str = r#"{"type": "object", "additionalProperties": false}"#;
{% if greets %}
const GREETING: &str = "hello";
{% endif %}
{% endif %}
const KEY: &str = "{{ name }}";
const URI: &str = "{{ uri }}";
{% if w.parameters %}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    #[serde(default = "hello")]
    pub greeting: String,
}

fn hello() -> String {
    "hello".to_owned()
}
{% endif %}
{% if h.response and counts %}

#[derive(Serialize)]
struct Greeting<'a> {
    greeting: &'a str,
{% if w.keyvalue %}
    count: u64,
{% endif %}
{% if w.clock %}
    at: u64,
{% endif %}
}
{% endif %}

struct {{ camel }}Extension;

/// Called once per load, before every other hook: describes the extension.
impl Extension for {{ camel }}Extension {
    type Parameters = {{ parameters }};
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(_: &{{ parameters }}) -> Result<Descriptor, String> {
        Ok(Descriptor {
            metadata_keys: vec![KEY.to_owned()],
{% if h.output or h.response %}
            events: EventKinds::ARTIFACT,
{% endif %}
            ..Descriptor::new(URI, "Says hello.")
        })
    }
}
{% if h.card %}

/// Called once per load: fills the extension's own entry on the Agent Card.
impl Card for {{ camel }}Extension {
    fn declare({{ "parameters" if w.parameters else "_" }}: &{{ parameters }}) -> Result<Declaration, String> {
        let params = format!(r#"{{ "{{" }}"greeting":{}}}"#, json::string({{ greeting }}));
        Ok(Declaration {
            description: None,
            params: Some(params),
        })
    }
}
{% endif %}
{% if h.live_card %}

/// Called once per load, and again when the entry's seconds are over: fills the extension's own entry
/// on the Agent Card.
impl LiveCard for {{ camel }}Extension {
    fn declare_live({{ "parameters" if w.parameters else "_" }}: &{{ parameters }}) -> Result<LiveDeclaration, String> {
        let params = format!(r#"{{ "{{" }}"greeting":{}}}"#, json::string({{ greeting }}));
        Ok(LiveDeclaration::params(params, 60))
    }
}
{% endif %}
{% if h.activation %}

/// Called once per request that names the URI: takes part, stays out, or refuses the request.
/// Without this hook the extension takes part, and a request is one call cheaper.
impl Activation for {{ camel }}Extension {
    fn activate(_: &{{ parameters }}, _: Request) -> Result<Decision, ExtensionError> {
        Ok(Decision::Active)
    }
}
{% endif %}
{% if h.message %}

/// Called once per active request: refuses the message, or replaces parts of it with the grant
/// `rewrite-message`.
impl Message for {{ camel }}Extension {
    fn check(_: &{{ parameters }}, _: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        if has_empty_text(&message) {
            return Err(Violation::new("/message/parts", "a text is empty").into());
        }
        Ok(Vec::new())
    }
}

fn has_empty_text(message: &str) -> bool {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    let parts = message["parts"].as_array();
    parts.is_some_and(|parts| parts.iter().any(|part| part["text"] == ""))
}
{% endif %}
{% if h.state %}

/// Called once per active request, before the agent runs: returns a change of the session's state, or
/// refuses the request.
impl State for {{ camel }}Extension {
    fn validate(
        _: &{{ parameters }},
        _: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        let entry = metadata.into_iter().find(|entry| entry.key == KEY);
        Ok(entry.map(|entry| entry.value))
    }
}
{% endif %}
{% if h.transition %}

/// Called when a turn begins and for each change of the task's state: lets the turn or the change
/// happen, lets the task wait, or vetoes the change. A change can also be annotated.
impl Transition for {{ camel }}Extension {
    fn begin(_: &{{ parameters }}, _: Request, _: Beginning) -> Result<Entry, String> {
        Ok(Entry::Proceed)
    }

    fn change(_: &{{ parameters }}, _: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Pass)
    }
}
{% endif %}
{% if h.reply %}

/// Called once per turn, before the agent runs: answers in its place, or lets it run.
impl Reply for {{ camel }}Extension {
    fn before_agent(
        _: &{{ parameters }},
        _: Request,
        message: Json,
    ) -> Result<Option<ReadyAnswer>, String> {
        let is_ping = message.contains(r#""text":"ping""#);
        Ok(is_ping.then(|| ReadyAnswer::text("pong")))
    }
}
{% endif %}
{% if h.steering %}

/// Called before each call of the model or of a tool, and for each result of a tool. The methods
/// `before_model` and `after_tool` change nothing unless you write them.
impl Steering for {{ camel }}Extension {
    fn before_tool(
        _: &{{ parameters }},
        call: ToolCall,
    ) -> Result<(ToolVerdict, Option<Remark>), String> {
        let verdict = match call.name.as_str() {
            "forbidden" => ToolVerdict::Deny("this tool is forbidden".to_owned()),
            _ => ToolVerdict::Pass,
        };
        Ok((verdict, None))
    }
}
{% endif %}
{% if h.output %}

/// Called for each outgoing event of the kinds that the descriptor names: leaves, replaces, holds back
/// or refuses its content.
impl Output for {{ camel }}Extension {
    fn revise(_: &{{ parameters }}, content: Content) -> Result<Verdict, String> {
        // A chunk may end within a word. With `Verdict::Hold` its text comes again with the next chunk.
        Verdict::text(&content, |text| text.replace("secret", "******"))
    }
}
{% endif %}
{% if h.response %}

/// Called for each outgoing event of the kinds that the descriptor names: adds metadata under `KEY`.
impl Response for {{ camel }}Extension {
    fn respond({{ "parameters" if w.parameters else "_" }}: &{{ parameters }}, _: Event) -> Result<Option<Patch>, String> {
{% if w.logging %}
        // A line of the host's log. `annex test` shows the lines of a case that fails.
        log::info("said hello");
{% endif %}
{% if counts %}
        let value = Greeting {
            greeting: {{ greeting }},
{% if w.keyvalue %}
            count: keyvalue::Keys::of_context()?.increment("count", 1)?,
{% endif %}
{% if w.clock %}
            at: clock::now_millis() / 1000,
{% endif %}
        };
        Ok(Some(Patch::entry(KEY, json::text(&value)?)))
{% else %}
        Ok(Some(Patch::entry(KEY, json::string({{ greeting }}))))
{% endif %}
    }
}
{% endif %}
{% if h.reads %}

/// Called once per read of a task, and once per page of a list: adds metadata that this reader alone is
/// shown, or leaves tasks out.
impl Reads for {{ camel }}Extension {
{% if w.parameters %}
    fn show(
        parameters: &Parameters,
        _: Request,
        tasks: Vec<ShownTask>,
    ) -> Result<Vec<View>, String> {
{% else %}
    fn show(_: &NoParameters, _: Request, tasks: Vec<ShownTask>) -> Result<Vec<View>, String> {
{% endif %}
        let view = View::entry(KEY, json::string({{ greeting }}));
        Ok(vec![view; tasks.len()])
    }
}
{% endif %}
{% if h.extended_card %}

/// Called once per read of the extended Agent Card: changes the extension's own entry for this reader
/// alone.
impl ExtendedCard for {{ camel }}Extension {
{% if w.parameters %}
    fn show_entry(
        parameters: &Parameters,
        _: Request,
        _: ShownEntry,
    ) -> Result<EntryChange, String> {
{% else %}
    fn show_entry(_: &NoParameters, _: Request, _: ShownEntry) -> Result<EntryChange, String> {
{% endif %}
        let params = format!(r#"{{ "{{" }}"greeting":{}}}"#, json::string({{ greeting }}));
        Ok(EntryChange::params(params))
    }
}
{% endif %}
{% if h.method %}

/// Called for each call of a method that `methods` declares: answers, or refuses.
impl Method for {{ camel }}Extension {
    fn methods(_: &{{ parameters }}) -> Result<Vec<MethodDeclaration>, String> {
        let name = format!("{KEY}.echo");
        let echo = MethodDeclaration::new(name, "Returns its parameters.");
        Ok(vec![echo])
    }

    fn call(_: &{{ parameters }}, _: Request, _: &str, params: Json) -> Result<Answer, Rejection> {
        Ok(Answer::Value(params))
    }
}
{% endif %}
{% if h.client %}

/// Called on the calling side, before a call and for each answer: adds to the call or refuses it, and
/// returns values for the calling program.
impl Client for {{ camel }}Extension {
    fn before(_: &{{ parameters }}, call: Outgoing) -> Result<Addition, Rejection> {
        Ok(Addition {
            activate: call.declaration.is_some(),
            metadata: Vec::new(),
        })
    }

    fn after(_: &{{ parameters }}, event: Incoming) -> Result<Option<Json>, String> {
        let mut metadata = event.metadata.into_iter();
        let value = metadata.find(|(key, _)| key == KEY).map(|(_, value)| value);
        Ok(value.filter(|_| event.active))
    }
}
{% endif %}

{% if w.keyvalue and not h.response %}
// keyvalue: `annex_sdk::keyvalue::Keys::open()?.get("key")?`
{% endif %}
{% if w.clock and not h.response %}
// clock: `annex_sdk::clock::now()`
{% endif %}
{% if w.logging and not h.response %}
// logging: `annex_sdk::log::info("a line")`
{% endif %}
{% if w.random %}
// random: `wasip2::random::random::get_random_u64()`
{% endif %}
{% if w.http %}
// http: `annex_sdk::http::Request::get("https://example.com/").send()`
{% endif %}
{% if w.json_schema %}
// json-schema: `annex_sdk::schema::validate(schema, instance)?`
{% endif %}
{% if w.session_state %}
// session-state: `annex_sdk::session::get("key")`
{% endif %}
{% if w.task %}
// task: `annex_sdk::task::current()`
{% endif %}
{% if w.tasks %}
// tasks: `annex_sdk::tasks::list("{}")?`
{% endif %}
{% if w.task_resumption %}
// task-resumption: `annex_sdk::tasks::resume(task_id)?`
{% endif %}
{% if w.agent_steps %}
// agent-steps: `annex_sdk::steps::recorded()`
{% endif %}
{% if w.caller %}
// caller: `annex_sdk::caller::current()?.claim("org")`
{% endif %}
{% if w.task_metadata %}
// task-metadata: `annex_sdk::task_metadata::set(KEY, "1")?`
{% endif %}
annex_sdk::export!({{ camel }}Extension{{ ": " if hooks }}{{ hooks | join(", ") | replace("-", "_") }});
{% if h.message %}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_text_is_found_in_any_part() {
        assert!(has_empty_text(r#"{"parts":[{"text":"hi"},{"text":""}]}"#));
        assert!(!has_empty_text(r#"{"parts":[{"text":"hi"}]}"#));
    }
}
{% endif %}
