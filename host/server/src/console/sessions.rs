//! The page of sessions: a list, one session with its state, its conversation and its tasks, and its deletion.

use annex_protocol::{JsonObject, Part, PartContent, Parts, TaskId};
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde::Deserialize;

use crate::admin::caller::AdminCaller;
use crate::admin::error::AdminError;
use crate::admin::shared::Admin;
use crate::admin_api::sessions::{Event, Session};
use crate::console::agents::{Choice, choices, of};
use crate::console::confirm::{ConfirmPage, Field, refused};
use crate::console::operator::{Change, ConsoleState, Operator};
use crate::console::page::page;
use crate::console::shown::{Row, address, age, block, json, line, members};
use crate::stores::sessions::tasks::SessionTask;
use crate::stores::sessions::{SessionFilter, SessionName};

const ACTIVE: &str = "sessions";
const PATH: &str = "/sessions";
/// The number of sessions on a page, and of events of one session.
const SHOWN: usize = 50;
/// The size of the shown texts of one event, or of the artifacts of one task, in bytes. Further texts are left out.
const ROOM: usize = 32 << 10;
/// The size of the markup around a text, in bytes.
const MARKUP: usize = 100;

pub(crate) fn routes() -> Router<ConsoleState> {
    Router::new()
        .route(PATH, get(list))
        .route("/session", get(show))
        .route("/session/delete", get(confirm_deletion).post(delete))
        .route("/session/cancel", get(confirm_cancellation).post(cancel))
}

/// The query for a page of the list.
#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    user: String,
    after: Option<String>,
}

/// The names of a session, in a query or a form.
#[derive(Deserialize)]
struct OfSession {
    #[serde(default)]
    tenant: String,
    user: String,
    context: String,
}

impl OfSession {
    fn name(&self) -> SessionName {
        let (user, context) = (Some(self.user.clone()), self.context.clone());
        SessionName { tenant: of(&self.tenant).tenant, user, context }
    }

    fn link(&self, path: &str) -> String {
        link(path, of(&self.tenant).tenant.as_deref(), &self.user, &self.context)
    }

    fn link_of_task(&self, path: &str, task: &str) -> String {
        let tenant = of(&self.tenant).tenant;
        let session = [("tenant", tenant.as_deref()), ("user", Some(&*self.user)), ("context", Some(&*self.context))];
        address(path, &[&session[..], &[("task", Some(task))]].concat())
    }

    fn list(&self) -> String {
        address(PATH, &[("tenant", of(&self.tenant).tenant.as_deref())])
    }
}

fn link(path: &str, tenant: Option<&str>, user: &str, context: &str) -> String {
    address(path, &[("tenant", tenant), ("user", Some(user)), ("context", Some(context))])
}

/// A session in the list.
struct SessionRow {
    link: String,
    context: String,
    user: String,
    events: u64,
    age: String,
    keys: String,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsTemplate {
    choices: Vec<Choice>,
    tenant: String,
    user: String,
    rows: Vec<SessionRow>,
    next: Option<String>,
}

async fn list(State(console): State<ConsoleState>, operator: Operator, Query(query): Query<ListQuery>) -> Response {
    match list_page(&console.admin, query).await {
        Ok(template) => page(&operator, "Sessions", ACTIVE, &template),
        Err(error) => refused(&operator, ACTIVE, &error, PATH),
    }
}

async fn list_page(admin: &Admin, query: ListQuery) -> Result<SessionsTemplate, AdminError> {
    let ListQuery { tenant, user, after } = query;
    let name = of(&tenant).tenant;
    let user_filter = Some(user.clone()).filter(|user| !user.is_empty());
    let filter = SessionFilter { tenant: name.clone(), user: user_filter, after, limit: SHOWN };
    let list = admin.list_sessions(filter).await?;
    let rows = list.sessions.iter().map(|session| SessionRow {
        link: link("/session", name.as_deref(), &session.user, &session.context),
        context: line(&session.context),
        user: line(&session.user),
        events: session.revision,
        age: age(&session.last_update),
        keys: line(&session.keys.join(", ")),
    });
    let next = |token: &String| {
        let user = Some(user.as_str()).filter(|user| !user.is_empty());
        address(PATH, &[("tenant", name.as_deref()), ("user", user), ("after", Some(token.as_str()))])
    };
    Ok(SessionsTemplate {
        choices: choices(PATH, &admin.tenant_names(), &tenant),
        rows: rows.collect(),
        next: list.next.as_ref().map(next),
        user: line(&user),
        tenant,
    })
}

/// The keys of one scope of the state.
struct ScopeView {
    name: &'static str,
    rows: Vec<Row>,
}

/// An event of the conversation.
struct EventView {
    author: String,
    title: String,
    parts: Vec<String>,
    delta: Vec<Row>,
    error: Option<String>,
}

/// A task of the session.
struct TaskView {
    id: String,
    state: &'static str,
    age: String,
    is_worked_on: bool,
    /// The page that asks before the task is cancelled. `None` for a finished task.
    cancel: Option<String>,
    artifacts: Vec<ArtifactView>,
}

/// An artifact of a task.
struct ArtifactView {
    name: String,
    parts: Vec<String>,
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionTemplate {
    facts: Vec<Row>,
    scopes: Vec<ScopeView>,
    events: Vec<EventView>,
    tasks: Vec<TaskView>,
    delete: String,
    back: String,
}

async fn show(State(console): State<ConsoleState>, operator: Operator, Query(of): Query<OfSession>) -> Response {
    match session_page(&console.admin, &of).await {
        Ok(template) => page(&operator, "Session", ACTIVE, &template),
        Err(error) => refused(&operator, ACTIVE, &error, &of.list()),
    }
}

async fn session_page(admin: &Admin, of: &OfSession) -> Result<SessionTemplate, AdminError> {
    let name = of.name();
    let session = admin.session(&name).await?;
    let events = admin.session_events(&name, SHOWN).await?;
    let tasks = admin.session_tasks(&name).await?;
    Ok(SessionTemplate {
        facts: facts(&session),
        scopes: scopes(&session),
        events: events.events.iter().map(event).collect(),
        tasks: tasks.iter().map(|shown| task(shown, of)).collect(),
        delete: of.link("/session/delete"),
        back: of.list(),
    })
}

fn facts(session: &Session) -> Vec<Row> {
    let mut facts = vec![
        Row::new("context", &session.context),
        Row::new("user", &session.user),
        Row::new("agent", &session.agent),
        Row::new("events", &session.revision.to_string()),
        Row::new("last event", &format!("{} ({} ago)", session.last_update, age(&session.last_update))),
    ];
    facts.extend(session.tenant.as_ref().map(|tenant| Row::new("tenant", tenant)));
    facts
}

fn scopes(session: &Session) -> Vec<ScopeView> {
    let scope_of = |key: &str| match key.split_once(':') {
        Some(("user", _)) => "user",
        Some(("app", _)) => "app",
        _ => "session",
    };
    let scope = |name: &'static str| {
        let mut state = session.state.clone();
        state.retain_keys(|key| scope_of(key) == name);
        ScopeView { name, rows: members(&state) }
    };
    ["session", "user", "app"].map(scope).into_iter().filter(|scope| !scope.rows.is_empty()).collect()
}

fn event(event: &Event) -> EventView {
    let error = event.error.as_ref();
    let mut room = Room::default();
    EventView {
        author: line(&event.author),
        title: line(&format!("{}, task {}", event.timestamp, event.task)),
        parts: room.parts(&event.parts),
        delta: room.members(&event.state_delta),
        error: error.map(|error| block(&format!("{}: {}", error.code, error.message))),
    }
}

fn task(task: &SessionTask, of: &OfSession) -> TaskView {
    let mut room = Room::default();
    let artifacts = task.artifacts.iter().map(|artifact| ArtifactView {
        name: line(artifact.name.as_deref().unwrap_or(artifact.artifact_id.as_str())),
        parts: room.parts(&artifact.parts),
    });
    TaskView {
        id: line(&task.id),
        state: task.state.name(),
        age: task.changed_at.as_deref().map(age).unwrap_or_default(),
        is_worked_on: task.is_worked_on,
        cancel: (!task.state.is_terminal()).then(|| of.link_of_task("/session/cancel", &task.id)),
        artifacts: artifacts.collect(),
    }
}

/// The room that is left for texts, in bytes.
struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(ROOM)
    }
}

impl Room {
    /// The parts as far as there is room, and the number of those that are left out.
    fn parts(&mut self, parts: &Parts) -> Vec<String> {
        let mut shown = Vec::new();
        for (number, shown_part) in parts.iter().map(part).enumerate() {
            if self.0 == 0 {
                shown.push(format!("… ({} more parts)", parts.len() - number));
                break;
            }
            self.0 = self.0.saturating_sub(shown_part.len() + MARKUP);
            shown.push(shown_part);
        }
        shown
    }

    /// The members of an object as far as there is room, and the number of those that are left out.
    fn members(&mut self, object: &JsonObject) -> Vec<Row> {
        let mut shown = members(object);
        let mut kept = 0;
        for row in &shown {
            if self.0 == 0 {
                break;
            }
            self.0 = self.0.saturating_sub(row.name.len() + row.value.len() + MARKUP);
            kept += 1;
        }
        if kept < shown.len() {
            let more = Row::new("…", &format!("{} more keys", shown.len() - kept));
            shown.truncate(kept);
            shown.push(more);
        }
        shown
    }
}

fn part(part: &Part) -> String {
    match &part.content {
        PartContent::Text(text) => block(text),
        PartContent::Data(data) => json(data.get()),
        PartContent::Url(url) => line(url),
        PartContent::Raw(base64) => {
            line(&format!("{} {}: {} bytes of base64", part.filename, part.media_type, base64.len()))
        }
    }
}

async fn confirm_deletion(
    State(console): State<ConsoleState>,
    operator: Operator,
    Query(of): Query<OfSession>,
) -> Response {
    let back = of.link("/session");
    let session = match console.admin.session(&of.name()).await {
        Ok(session) => session,
        Err(error) => return refused(&operator, ACTIVE, &error, &of.list()),
    };
    let own = session.state.keys().filter(|key| !key.starts_with("user:") && !key.starts_with("app:")).count();
    let sentences = vec![
        format!("The session {} of {} is deleted.", line(&session.context), line(&session.user)),
        format!("Its {} events, its artifacts and the {own} keys of its own state are lost.", session.revision),
        "The keys of the scopes user and app stay, because other sessions share them.".to_owned(),
    ];
    let fields =
        vec![Field::new("tenant", &of.tenant), Field::new("user", &of.user), Field::new("context", &of.context)];
    let confirm = ConfirmPage { sentences, action: "/session/delete", fields, button: "Delete", back };
    confirm.into_page(&operator, "Delete a session", ACTIVE)
}

async fn delete(State(console): State<ConsoleState>, change: Change<OfSession>) -> Response {
    let Change { operator, caller, form } = change;
    match console.admin.delete_session(caller, form.name()).await {
        Ok(_) => Redirect::to(&form.list()).into_response(),
        Err(error) => refused(&operator, ACTIVE, &error, &form.link("/session")),
    }
}

/// A task of a session, in a query or a form.
#[derive(Deserialize)]
struct OfTask {
    #[serde(default)]
    tenant: String,
    user: String,
    context: String,
    task: String,
}

impl OfTask {
    /// The session and the id of the task.
    fn into_parts(self) -> (OfSession, String) {
        let Self { tenant, user, context, task } = self;
        (OfSession { tenant, user, context }, task)
    }
}

async fn confirm_cancellation(operator: Operator, Query(query): Query<OfTask>) -> Response {
    let (of, task) = query.into_parts();
    let sentences = vec![
        format!("The task {} is cancelled, as by its client. The turn that works on it ends.", line(&task)),
        "Its messages and artifacts so far stay. An answer that is not finished is lost.".to_owned(),
    ];
    let fields = vec![
        Field::new("tenant", &of.tenant),
        Field::new("user", &of.user),
        Field::new("context", &of.context),
        Field::new("task", &task),
    ];
    let back = of.link("/session");
    let confirm = ConfirmPage { sentences, action: "/session/cancel", fields, button: "Cancel the task", back };
    confirm.into_page(&operator, "Cancel a task", ACTIVE)
}

async fn cancel(State(console): State<ConsoleState>, change: Change<OfTask>) -> Response {
    let Change { operator, caller, form } = change;
    let (of, task) = form.into_parts();
    let back = of.link("/session");
    match cancel_task(&console, caller, &of, &task).await {
        Ok(()) => Redirect::to(&back).into_response(),
        Err(error) => refused(&operator, ACTIVE, &error, &back),
    }
}

async fn cancel_task(
    console: &ConsoleState,
    caller: AdminCaller,
    of: &OfSession,
    task: &str,
) -> Result<(), AdminError> {
    let not_served = |reason: String| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "not_served", reason);
    let owner = console.admin.session_owner(&of.name())?;
    let app = console.gate.app().map_err(|error| not_served(error.to_string()))?;
    let handler = app.tenants().serving_owner(&owner).await;
    let handler = handler.ok_or_else(|| not_served("the tenant of the task is not served now".to_owned()))?;
    console.admin.cancel_task(caller, handler, owner, TaskId::from(task)).await
}

#[cfg(test)]
mod tests {
    use annex_protocol::{JsonObject, Part, Parts};

    use super::{ROOM, Room};

    #[test]
    fn many_parts_and_keys_take_little_room_on_a_page() {
        for text in [String::new(), "<".to_owned(), "x".repeat(20_000)] {
            let parts = Parts::from(vec![Part::text(text); 10_000]);
            let mut room = Room::default();
            let shown = room.parts(&parts);
            assert!(shown.len() < 1_000 && shown.iter().map(String::len).sum::<usize>() < 2 * ROOM, "{}", shown.len());
            assert_eq!(shown.last(), Some(&format!("… ({} more parts)", 10_001 - shown.len())));
            let keys: JsonObject = serde_json::from_str(r#"{"a":1,"b":2}"#).expect("an object");
            let left_out = room.members(&keys);
            assert_eq!(left_out.iter().map(|row| row.value.as_str()).collect::<Vec<_>>(), ["2 more keys"]);
        }
        let two = Parts::from(vec![Part::text("a"), Part::text("b")]);
        assert_eq!(Room::default().parts(&two), ["a", "b"]);
    }
}
