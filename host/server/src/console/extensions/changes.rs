//! Changes of installed extensions. Each one has a page that explains it, with a button.

use annex_leases::editions::Consent;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use crate::admin::error::AdminError;
use crate::admin_api::extensions::Details;
use crate::console::agents::{self, OfAgent, of};
use crate::console::confirm::{ConfirmPage, Field, refused};
use crate::console::operator::{Change, ConsoleState, Operator};
use crate::console::shown::{address, line};

pub(super) fn routes() -> Router<ConsoleState> {
    Router::new()
        .route("/extension/confirm", get(confirm))
        .route("/extension/change", post(change))
        .route("/extensions/reload", get(confirm_reload).post(reload))
}

/// The change of an installed extension.
#[derive(Clone, Deserialize)]
struct WantedChange {
    #[serde(default)]
    tenant: String,
    uri: String,
    action: Action,
    /// The version to roll back to. `None` without one.
    to: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Rollback,
    Promote,
    EndShadow,
    Remove,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Promote => "promote",
            Self::EndShadow => "end-shadow",
            Self::Remove => "remove",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Rollback => "Roll back",
            Self::Promote => "Promote the shadow",
            Self::EndShadow => "Drop the shadow",
            Self::Remove => "Remove",
        }
    }
}

fn page_of(wanted: &WantedChange) -> String {
    address("/extension", &[("tenant", of(&wanted.tenant).tenant.as_deref()), ("uri", Some(wanted.uri.as_str()))])
}

async fn confirm(
    State(console): State<ConsoleState>,
    operator: Operator,
    Query(wanted): Query<WantedChange>,
) -> Response {
    let back = page_of(&wanted);
    match console.admin.extension(&of(&wanted.tenant), &wanted.uri).await {
        Ok(details) => {
            let mut fields = vec![
                Field::new("tenant", &wanted.tenant),
                Field::new("uri", &wanted.uri),
                Field::new("action", wanted.action.name()),
            ];
            fields.extend(wanted.to.map(|to| Field::new("to", &to.to_string())));
            let action = "/extension/change";
            let sentences = sentences(&wanted, &details);
            let confirm = ConfirmPage { sentences, action, fields, button: wanted.action.title(), back };
            confirm.into_page(&operator, wanted.action.title(), "extensions")
        }
        Err(error) => refused(&operator, "extensions", &error, &back),
    }
}

/// Sentences about the effects of the change and the data that it deletes.
fn sentences(wanted: &WantedChange, details: &Details) -> Vec<String> {
    let summary = &details.summary;
    let uri = line(&summary.uri);
    let present = format!("version {} ({})", summary.version, line(&summary.digest));
    let mut sentences = match wanted.action {
        Action::Rollback => {
            let to =
                wanted.to.map_or_else(|| "The version that was replaced last".to_owned(), |to| format!("Version {to}"));
            vec![
                format!("{to} of {uri} is installed again, in place of {present}."),
                "This version stays installed until its source changes or the server restarts.".to_owned(),
                "Turns that run now end on their version.".to_owned(),
            ]
        }
        Action::Promote => vec![
            format!(
                "The shadow of {uri} is installed in place of {present}, with the results of its turns from now on."
            ),
            "The replaced version is kept, so a rollback is possible. The comparison ends.".to_owned(),
        ],
        Action::EndShadow => vec![
            format!("The shadow of {uri} ends. {present} stays installed."),
            "The counts and examples of the comparison are lost.".to_owned(),
        ],
        Action::Remove => vec![
            format!("{uri}, {present}, is removed. The card no longer has its entry, and requests cannot activate it."),
            format!(
                "The server forgets its {} replaced versions, its log and its shadow.",
                details.kept_versions.len()
            ),
        ],
    };
    if wanted.action == Action::Remove {
        let pinned = summary.pinned_tasks;
        if pinned > 0 {
            sentences
                .push(format!("{pinned} waiting tasks are pinned to this version, and go on without the extension."));
        }
        if summary.required {
            sentences
                .push("The extension is required now. After the removal, requests without it are accepted.".to_owned());
        }
        sentences.push(match summary.source.kind.as_str() {
            "config" => "The config names the extension, so a reload or a restart installs it again.".to_owned(),
            "folder" => "Its files in the managed folder are deleted.".to_owned(),
            _ => "Only another upload installs it again.".to_owned(),
        });
    }
    sentences
}

async fn change(State(console): State<ConsoleState>, change: Change<WantedChange>) -> Response {
    let Change { operator, caller, form: wanted } = change;
    let (back, id, admin) = (page_of(&wanted), wanted.uri.as_str(), &console.admin);
    let of = of(&wanted.tenant);
    let list = agents::page_of("/extensions", &wanted.tenant);
    let changed: Result<String, AdminError> = match wanted.action {
        Action::Rollback => admin.roll_back_extension(caller, of, id, wanted.to).await.map(|_| back.clone()),
        Action::Promote => admin.promote_shadow(caller, &of, id).await.map(|_| back.clone()),
        Action::EndShadow => admin.end_shadow(caller, &of, id).await.map(|_| back.clone()),
        Action::Remove => admin.remove_extension(caller, of, id, Consent::OfAll).await.map(|_| list),
    };
    match changed {
        Ok(next) => Redirect::to(&next).into_response(),
        Err(error) => refused(&operator, "extensions", &error, &back),
    }
}

async fn confirm_reload(operator: Operator, Query(wanted): Query<OfAgent>) -> Response {
    let back = agents::page_of("/extensions", &wanted.tenant);
    let what = match wanted.tenant.as_str() {
        "" => "The config of the server and of all tenants is read again.".to_owned(),
        name => format!("The extensions of the config of tenant {} are read again.", line(name)),
    };
    let sentences = vec![
        what,
        "The extensions of the config are installed with its settings, also those that were removed here.".to_owned(),
        "If the config has a mistake, nothing changes.".to_owned(),
    ];
    let fields = vec![Field::new("tenant", &wanted.tenant)];
    let confirm = ConfirmPage { sentences, action: "/extensions/reload", fields, button: "Read again", back };
    confirm.into_page(&operator, "Read the config again", "extensions")
}

async fn reload(State(console): State<ConsoleState>, change: Change<OfAgent>) -> Response {
    let Change { operator, caller, form } = change;
    let back = agents::page_of("/extensions", &form.tenant);
    match console.admin.reload(caller, of(&form.tenant)).await {
        Ok(_) => Redirect::to(&back).into_response(),
        Err(error) => refused(&operator, "extensions", &error, &back),
    }
}
