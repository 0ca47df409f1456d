//! The host for native unit tests, with an extension that calls each function of the host.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use annex_sdk::keyvalue::Keys;
use annex_sdk::testing::{self, Bucket, Host};
use annex_sdk::{
    Answer, Content, Descriptor, EntryChange, Event, EventKind, ExtendedCard, Extension, Identity, Json, LiveCard,
    LiveDeclaration, Method, MethodDeclaration, ModelVerdict, Output, Patch, Place, Presence, Reads, ReadyAnswer,
    Rejection, Remark, Reply, Request, Response, Scopes, ShownEntry, ShownTask, Steering, ToolCall, ToolVerdict,
    Verdict, View, Violation, caller, clock, json, log, schema, secrets, session, steps, task, task_metadata, tasks,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    greeting: String,
}

struct Greeter;

impl Extension for Greeter {
    type Parameters = Parameters;

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor::new("https://a.example/greeter", parameters.greeting.clone()))
    }
}

impl Response for Greeter {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let count = Keys::of_context()?.increment("count", 1)?;
        log::debug(&format!("{count} in {}", event.context_id));
        Ok(Some(Patch::entry("greeting", parameters.greeting.clone())))
    }
}

impl Method for Greeter {
    fn methods(_: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        Ok(Vec::new())
    }

    fn call(_: &Parameters, _: Request, name: &str, params: Json) -> Result<Answer, Rejection> {
        Ok(Answer::Value(format!("{name} {params}")))
    }
}

impl Reply for Greeter {
    fn before_agent(parameters: &Parameters, request: Request, message: Json) -> Result<Option<ReadyAnswer>, String> {
        if message == "{}" {
            return Ok(None);
        }
        let principal = caller::current()?.principal.unwrap_or_default();
        Ok(Some(ReadyAnswer::text(&format!("{} {principal}: {}", parameters.greeting, request.operation))))
    }
}

impl Output for Greeter {
    fn revise(_: &Parameters, content: Content) -> Result<Verdict, String> {
        task_metadata::set("count", &content.held.to_string())?;
        match content.place {
            Place::Message => Ok(Verdict::Refuse("no messages".to_owned())),
            Place::Status(_) => Ok(Verdict::Leave),
            Place::Artifact(_) => Verdict::text(&content, str::to_uppercase),
        }
    }
}

impl Steering for Greeter {
    fn before_tool(parameters: &Parameters, call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        let verdict = if call.has_waited { ToolVerdict::Pass } else { ToolVerdict::Deny(parameters.greeting.clone()) };
        Ok((verdict, Some(Remark::text(&call.name))))
    }
}

impl Reads for Greeter {
    fn show(_: &Parameters, request: Request, tasks: Vec<ShownTask>) -> Result<Vec<View>, String> {
        Ok(tasks.into_iter().map(|task| View::entry(task.id, json::string(&request.operation))).collect())
    }
}

impl ExtendedCard for Greeter {
    fn show_entry(parameters: &Parameters, request: Request, entry: ShownEntry) -> Result<EntryChange, String> {
        if entry.params.is_some() {
            return Ok(EntryChange::default());
        }
        let principal = caller::current()?.principal.ok_or("nobody calls")?;
        Ok(EntryChange {
            description: Some(format!("{} {principal}: {}", parameters.greeting, entry.description)),
            ..EntryChange::params(format!("{{\"operation\":{}}}", json::string(&request.operation)))
        })
    }
}

impl LiveCard for Greeter {
    fn declare_live(_: &Parameters) -> Result<LiveDeclaration, String> {
        Ok(LiveDeclaration::params(format!(r#"{{"n":{}}}"#, Keys::open()?.increment("declarations", 1)?), 60))
    }
}

fn host() -> Host {
    Host::new().parameters(r#"{"greeting": "hi"}"#)
}

/// The text of the panic.
fn panic_of<T>(calls: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(calls)) else { return "no panic".to_owned() };
    *payload.downcast::<String>().expect("a formatted panic")
}

#[test]
fn a_hook_gets_the_parameters_and_the_host_keeps_what_it_did() {
    let host = host().key(Bucket::Context, "count", "7");
    let patch = host.respond::<Greeter>(testing::event(EventKind::Message));
    assert_eq!(patch, Ok(Some(Patch::entry("greeting", "hi"))));
    assert_eq!(host.value(Bucket::Context, "count"), Some("8".into()));
    assert_eq!(host.log(), ["debug: 8 in context-1"]);
    assert_eq!(host.call::<Greeter>(testing::request(), "m", "{}"), Ok(Answer::Value("m {}".to_owned())));
}

#[test]
fn an_answer_of_reply_may_depend_on_the_caller() {
    let before = |host: Host, message: &str| host.before_agent::<Greeter>(testing::request(), message).unwrap();
    assert_eq!(before(host(), "{}"), None);
    let answer = before(host().caller(testing::identity("ada")), "{\"parts\":[]}");
    assert_eq!(answer, Some(ReadyAnswer::text("hi ada: SendMessage")));
}

#[test]
fn output_revises_content_and_sets_metadata_of_the_task() {
    let host = host();
    let Ok(Verdict::Replace(replaced)) = host.revise::<Greeter>(testing::content()) else {
        panic!("the text is not replaced")
    };
    assert_eq!(replaced[0].parts, [r#"{"text":"HELLO"}"#]);
    let message = Content { place: Place::Message, held: 2, ..testing::content() };
    assert_eq!(host.revise::<Greeter>(message), Ok(Verdict::Refuse("no messages".to_owned())));
    assert_eq!(host.task_metadata(), [("count".to_owned(), "2".to_owned())]);
    assert!(host.run(|| task_metadata::set("count", "{")).is_err());
}

#[test]
fn steering_decides_about_each_tool_and_leaves_models_and_results_alone() {
    let host = host();
    let (verdict, remark) = host.before_tool::<Greeter>(testing::tool_call("sum")).unwrap();
    assert_eq!((verdict, remark), (ToolVerdict::Deny("hi".to_owned()), Some(Remark::text("sum"))));
    let waited = ToolCall { has_waited: true, ..testing::tool_call("sum") };
    assert_eq!(host.before_tool::<Greeter>(waited).unwrap().0, ToolVerdict::Pass);
    assert_eq!(host.before_model::<Greeter>(testing::model_call()), Ok((ModelVerdict::Pass, None)));
    assert_eq!(host.after_tool::<Greeter>(testing::tool_result("sum", "3")), Ok((None, None)));
}

#[test]
fn reads_have_a_view_of_each_task_and_a_live_card_keeps_its_keys() {
    let host = host();
    let views = host.show::<Greeter>(testing::request(), vec![testing::shown_task()]).unwrap();
    assert_eq!(views, [View::entry("task-1", "\"SendMessage\"")]);
    let declared = |number: u32| Ok(LiveDeclaration::params(format!(r#"{{"n":{number}}}"#), 60));
    assert_eq!([host.declare_live::<Greeter>(), host.declare_live::<Greeter>()], [declared(1), declared(2)]);
    assert_eq!(host.value(Bucket::Lasting, "declarations"), Some("2".into()));
}

#[test]
fn an_entry_of_the_extended_card_may_depend_on_the_caller() {
    let host = host().caller(testing::identity("ada"));
    let change = host.show_entry::<Greeter>(testing::request(), testing::shown_entry());
    let params = Some(r#"{"operation":"SendMessage"}"#.to_owned());
    assert_eq!(
        change,
        Ok(EntryChange { description: Some("hi ada: An extension.".to_owned()), params: params.clone() })
    );
    let entry = ShownEntry { params, ..testing::shown_entry() };
    assert_eq!(host.show_entry::<Greeter>(testing::request(), entry), Ok(EntryChange::default()));
}

#[test]
fn claims_are_read_as_text_and_header_fields_by_any_case() {
    let headers = vec![("x-scope".to_owned(), "context".to_owned()), ("x-scope".to_owned(), "task".to_owned())];
    let ada = Identity {
        claims: r#"{"org": "ac\u006de", "level": 3, "roles": ["a"]}"#.to_owned(),
        headers,
        ..testing::identity("ada")
    };
    assert!(ada.is_authenticated());
    assert_eq!(ada.claim("org").as_deref(), Some("acme"));
    assert_eq!((ada.claim("level"), ada.claim("roles"), ada.claim("sub")), (None, None, None));
    assert_eq!((ada.header("X-Scope"), ada.header("x-other")), (Some("context"), None));
    let panic = panic_of(|| Host::new().caller(Identity { claims: "[]".to_owned(), ..testing::identity("ada") }));
    assert!(panic.starts_with("annex_sdk::testing: the claims cannot be read"), "{panic}");
}

#[test]
fn parameters_that_do_not_fit_are_an_error_of_the_descriptor_and_a_panic_of_other_hooks() {
    assert_eq!(host().descriptor::<Greeter>().map(|descriptor| descriptor.description), Ok("hi".to_owned()));
    let other = Host::new().parameters(r#"{"greting": "hi"}"#);
    assert!(other.descriptor::<Greeter>().is_err_and(|error| error.contains("`greting`")));
    let panic = panic_of(|| other.respond::<Greeter>(testing::event(EventKind::Message)));
    assert!(panic.contains("`greting`"), "{panic}");
}

#[test]
fn a_new_host_has_nothing() {
    Host::new().run(|| {
        assert_eq!(clock::now(), "1970-01-01T00:00:00.000Z");
        assert_eq!((session::get("name"), session::snapshot()), (None, "{}".to_owned()));
        assert_eq!(session::writable(), Scopes::SESSION);
        assert_eq!((task::current(), steps::recorded()), (None, "[]".to_owned()));
        let caller = caller::current().unwrap();
        assert_eq!((caller.presence, caller.principal, caller.claims.as_str()), (Presence::Anonymous, None, "{}"));
        assert_eq!(secrets::get("KEY"), Ok(None));
        assert_eq!(Keys::open().unwrap().list(), Ok(Vec::new()));
        assert!(tasks::resume("task-1").is_err());
    });
}

#[test]
fn the_host_tells_what_it_was_given() {
    let host = Host::new()
        .parameters(r#"{"n": 1.0, "text": "a\n"}"#)
        .secret("KEY", "x")
        .session(r#"{"name": "Ada", "n": 1.0}"#)
        .writable(Scopes::SESSION | Scopes::USER)
        .task(r#"{"id": "task-1"}"#)
        .steps("[{}]")
        .tasks(|request| Ok(format!("[{request}]")));
    host.run(|| {
        assert_eq!(secrets::get("KEY"), Ok(Some("x".to_owned())));
        // As in the host: a string unchanged, any other value as its JSON text.
        assert_eq!(secrets::get("text"), Ok(Some("a\n".to_owned())));
        assert_eq!(secrets::get("n"), Ok(Some("1.0".to_owned())));
        assert_eq!(session::get("n"), Some("1.0".to_owned()));
        assert_eq!(session::snapshot(), r#"{"name": "Ada", "n": 1.0}"#);
        assert!(session::writable().contains(Scopes::USER));
        assert_eq!(task::current(), Some(r#"{"id": "task-1"}"#.to_owned()));
        assert_eq!(steps::recorded(), "[{}]");
        assert_eq!(tasks::list("{}"), Ok("[{}]".to_owned()));
    });
}

#[test]
fn time_stands_still_until_it_is_let_pass() {
    let host = Host::new().clock("2026-11-20T09:41:07.25+01:00");
    assert_eq!(host.run(clock::now), "2026-11-20T08:41:07.250Z");
    host.advance(Duration::from_millis(750));
    assert_eq!(host.run(clock::now), "2026-11-20T08:41:08.000Z");
    assert_eq!(host.clock(&clock::text(12)).run(clock::now_millis), 12);
    let panic = panic_of(|| Host::new().clock("yesterday"));
    assert!(panic.contains("\"yesterday\""), "{panic}");
}

#[test]
fn buckets_are_apart_and_may_be_missing_or_fail() {
    let host = Host::new().key(Bucket::Lasting, "b", "1").key(Bucket::Lasting, "a", [0, 255]);
    host.run(|| {
        let keys = Keys::open().unwrap();
        assert_eq!(keys.list(), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(keys.get("a"), Ok(Some(vec![0, 255])));
        keys.delete("a").unwrap();
        Keys::of_task().unwrap().set("a", b"task").unwrap();
        assert!(Keys::of_context().unwrap().list().unwrap().is_empty());
    });
    assert_eq!(host.keys(Bucket::Lasting), ["b"]);
    assert_eq!(host.value(Bucket::Task, "a"), Some("task".into()));

    let host = host.without(Bucket::Task).failing(Bucket::Lasting, "the disk is full");
    host.run(|| {
        assert!(Keys::of_task().is_err_and(|error| error == "there is no such store"));
        assert_eq!(Keys::open().unwrap().get("b"), Err("the disk is full".to_owned()));
    });
    assert_eq!(host.working(Bucket::Lasting).run(|| Keys::open()?.get("b")), Ok(Some("1".into())));
}

#[test]
fn a_counter_is_decimal_text() {
    let host = Host::new().key(Bucket::Lasting, "text", "x").key(Bucket::Lasting, "full", u64::MAX.to_string());
    host.run(|| {
        let keys = Keys::open().unwrap();
        assert_eq!((keys.increment("new", 2), keys.increment("new", 3)), (Ok(2), Ok(5)));
        assert!(keys.increment("text", 1).is_err() && keys.increment("full", 1).is_err());
    });
    assert_eq!(host.value(Bucket::Lasting, "new"), Some("5".into()));
    assert_eq!(host.value(Bucket::Lasting, "text"), Some("x".into()));
}

#[test]
fn a_task_that_waits_is_taken_up_once() {
    let host = Host::new().waiting(["task-1", "task-2"]);
    host.run(|| {
        assert_eq!(tasks::resume("task-2"), Ok(()));
        assert!(tasks::resume("task-2").is_err());
    });
    assert_eq!(host.resumed(), ["task-2"]);
}

#[test]
fn the_test_answers_for_schemas() {
    assert_eq!(Host::new().run(|| schema::compile("{}")), Ok(()));
    assert!(Host::new().run(|| schema::compile("{")).is_err());
    let host = Host::new()
        .compile(|schema| if schema == "{}" { Ok(()) } else { Err("too long".to_owned()) })
        // An answer may call the host itself.
        .schema(|_, instance| Ok(vec![Violation::new("/x", format!("{instance} at {}", clock::now_millis()))]));
    assert_eq!(host.run(|| schema::compile("[]")), Err("too long".to_owned()));
    assert_eq!(host.run(|| schema::validate("{}", "1")), Ok(vec![Violation::new("/x", "1 at 0")]));
}

#[test]
fn what_is_not_prepared_is_named() {
    let panic = panic_of(|| Host::new().run(|| schema::validate("{}", "1")));
    assert!(panic.contains("`schema::validate`") && panic.contains("`Host::schema`"), "{panic}");
    let panic = panic_of(|| Host::new().run(|| tasks::list("{}")));
    assert!(panic.contains("`tasks::list`") && panic.contains("`Host::tasks`"), "{panic}");
    let panic = panic_of(|| Host::new().session("[]"));
    assert!(panic.starts_with("annex_sdk::testing: the session cannot be read"), "{panic}");
}

#[test]
fn a_call_outside_of_a_host_says_what_to_do() {
    let keys = Host::new().run(|| Keys::open().unwrap());
    let advice = "was called outside of a Host; wrap the call in `Host::run`";
    assert_eq!(panic_of(|| keys.get("a")), format!("annex_sdk::testing: `keyvalue::Keys::get` {advice}"));
    assert_eq!(panic_of(clock::now), format!("annex_sdk::testing: `clock::now` {advice}"));
    assert_eq!(panic_of(|| log::warn("x")), format!("annex_sdk::testing: `log::warn` {advice}"));
}

#[test]
fn an_inner_host_takes_the_place_of_the_outer_one_until_it_ends_even_by_a_panic() {
    let outer = Host::new();
    let inner = Host::new();
    outer.run(|| {
        inner.run(|| log::info("inner"));
        log::info("outer");
        assert_eq!(panic_of(|| inner.run(|| panic!("{}", "trap"))), "trap");
        log::info("outer again");
    });
    assert_eq!(inner.log(), ["info: inner"]);
    assert_eq!(outer.log(), ["info: outer", "info: outer again"]);
    assert_ne!(panic_of(clock::now), "no panic");
}

#[cfg(feature = "http")]
#[test]
fn a_request_is_noted_and_the_test_answers() {
    use annex_sdk::http;

    let host = Host::new().http(|sent| match sent.url.as_str() {
        "https://a.example/" => Ok(http::Response { status: 201, fields: Vec::new(), body: sent.body.clone() }),
        _ => Err(http::Error::Failed(http::ErrorCode::HttpRequestDenied)),
    });
    host.run(|| {
        let answer = http::Request::post("https://a.example/", "x").field("Accept", "text/plain").send().unwrap();
        assert_eq!((answer.status, answer.body), (201, b"x".to_vec()));
        assert!(matches!(http::Request::get("https://b.example/").send(), Err(http::Error::Failed(_))));
        assert!(matches!(http::Request::get("b.example").send(), Err(http::Error::Url(_))));
    });
    let sent = host.sent();
    let sent: Vec<(&str, &str)> = sent.iter().map(|sent| (sent.method.as_str(), sent.url.as_str())).collect();
    assert_eq!(sent, [("POST", "https://a.example/"), ("GET", "https://b.example/")]);
    assert_eq!(host.sent()[0].fields, [("Accept".to_owned(), b"text/plain".to_vec())]);
    let panic = panic_of(|| Host::new().run(|| http::Request::get("https://a.example").send()));
    assert!(panic.contains("`http::Request::send`") && panic.contains("`Host::http`"), "{panic}");
}
