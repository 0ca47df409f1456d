//! `annex session`

use std::path::{Path, PathBuf};

use annex_server::admin_api::sessions::{
    self, DeletedKeys, DeletedSession, DeletedUserState, Event, EventError, Events, KeysToDelete, SessionSummary,
    SharedState,
};
use annex_server::{Config, SessionFilter, SessionName, Sessions, StateOwner};
use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Serialize;

use crate::admin::{Admin, OfTenant};
use crate::line::Line;
use crate::pretty::pretty_text;

/// Show and delete the sessions of a server and their state, through its admin API or where it keeps them.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex session list\n  annex session show 0197f9c2-7c1e-7d8a-b0a5-2f2b3f6c9a11\n  annex \
                        session events my-context --user principal:ada --last 10\n  annex session delete-keys \
                        app:motd app:old\n  annex session delete-user principal:ada\n  annex session list --config \
                        annex.toml\n\nThe server's config needs [admin]; the token is read from --token-file, or from \
                        the environment variable ANNEX_ADMIN_TOKEN. With --config no server is asked: the \
                        sessions are read from the folder or the database that the config names. Delete sessions that way \
                        only if no server runs: a running server does not notice it.\n\nValues whose keys look like secrets are hidden; \
                        sessions.hide in the config says which."
)]
pub(crate) struct Session {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    admin: Admin,
    #[command(flatten)]
    of: OfTenant,
    /// Read the sessions from the folder or database that this config names, without a server
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["admin", "token_file"])]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// List sessions, the longest unchanged first
    List {
        /// List only the sessions of this user, as the list spells it
        #[arg(long)]
        user: Option<String>,
        /// Continue the list whose last page ended with this `next`
        #[arg(long, value_name = "NEXT")]
        after: Option<String>,
        /// List at most this many sessions
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one session with its state
    Show(SessionArgs),
    /// Show the last events of one session
    Events {
        #[command(flatten)]
        session: SessionArgs,
        /// Show at most this many events
        #[arg(long, default_value_t = 100)]
        last: usize,
    },
    /// Delete one session with its events, but not `app:` and `user:` keys. Needs --user unless the user is anonymous
    Delete(SessionArgs),
    /// Show the state that sessions share: `app:` keys, and the `user:` keys of one user
    State(Owner),
    /// Delete state keys: `app:` keys, `user:` keys of one user, or keys of one session
    DeleteKeys {
        /// The keys with their prefixes
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        #[command(flatten)]
        owner: Owner,
    },
    /// Delete all `user:` keys of a user, also of one without a session
    DeleteUser {
        /// The user, as the list spells it
        user: String,
    },
}

#[derive(Args)]
struct Owner {
    /// The owner of the `user:` keys, as the list spells it; default: the anonymous user of --context
    #[arg(long)]
    user: Option<String>,
    /// The context id of the session to which keys without a prefix belong
    #[arg(long)]
    context: Option<String>,
}

#[derive(Args)]
struct SessionArgs {
    /// The context id
    context: String,
    /// The user, as the list spells it; default: the anonymous user of the context, or the only user with such a session
    #[arg(long)]
    user: Option<String>,
}

impl Session {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        // Both ways give the JSON of the admin API, so the same code shows either.
        let answer = match &self.config {
            Some(config) => self.read(config).await?,
            None => self.ask().await?,
        };
        match &self.command {
            Command::List { .. } => self.admin.print(&answer, list),
            Command::Show(_) => self.admin.print(&answer, shown),
            Command::Events { .. } => self.admin.print(&answer, events),
            Command::Delete(_) => self.admin.print(&answer, deleted),
            Command::State(_) => self.admin.print(&answer, shared),
            Command::DeleteKeys { .. } => self.admin.print(&answer, deleted_keys),
            Command::DeleteUser { .. } => self.admin.print(&answer, deleted_user_state),
        }
    }

    /// Sends the command to the admin API, and returns the answer's JSON.
    async fn ask(&self) -> anyhow::Result<String> {
        let client = self.admin.client()?.on(&self.of);
        let (method, path, query): (_, Vec<&str>, Vec<(&str, String)>) = match &self.command {
            Command::List { user, after, limit } => {
                let query = [("user", user.clone()), ("after", after.clone()), ("limit", Some(limit.to_string()))];
                (Method::GET, vec!["sessions"], given(query))
            }
            Command::Show(SessionArgs { context, user }) => {
                (Method::GET, vec!["sessions", context], given([("user", user.clone())]))
            }
            Command::Events { session: SessionArgs { context, user }, last } => {
                let query = [("user", user.clone()), ("last", Some(last.to_string()))];
                (Method::GET, vec!["sessions", context, "events"], given(query))
            }
            Command::Delete(SessionArgs { context, user }) => {
                (Method::DELETE, vec!["sessions", context], given([("user", user.clone())]))
            }
            Command::State(Owner { user, context }) => {
                (Method::GET, vec!["state"], given([("user", user.clone()), ("context", context.clone())]))
            }
            Command::DeleteKeys { keys, owner: Owner { user, context } } => {
                let body = KeysToDelete { keys: keys.clone(), user: user.clone(), context: context.clone() };
                return client.call(Method::POST, &["state", "delete"], Some(&body)).await;
            }
            Command::DeleteUser { user } => (Method::DELETE, vec!["state"], given([("user", Some(user.clone()))])),
        };
        let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        client.call_with(method, &path, &query, None::<&()>).await
    }

    /// Reads the stored sessions directly, without a server.
    async fn read(&self, config: &Path) -> anyhow::Result<String> {
        let folder = config.parent().unwrap_or(Path::new(""));
        let config = Config::read(config)?;
        let sessions = Sessions::open(&config, folder).await?;
        let tenant = self.of.tenant.clone();
        let name = |named: &SessionArgs| SessionName {
            tenant: tenant.clone(),
            user: named.user.clone(),
            context: named.context.clone(),
        };
        let owner = |Owner { user, context }: &Owner| StateOwner {
            tenant: tenant.clone(),
            user: user.clone(),
            context: context.clone(),
        };
        match &self.command {
            Command::List { user, after, limit } => {
                let user = user.clone();
                let after = after.clone();
                let limit = *limit;
                json(&sessions.list(SessionFilter { tenant: tenant.clone(), user, after, limit }).await?)
            }
            Command::Show(named) => json(&sessions.show(&name(named)).await?),
            Command::Events { session, last } => json(&sessions.events(&name(session), *last).await?),
            Command::Delete(named) => json(&sessions.delete(&name(named)).await?),
            Command::State(of) => json(&sessions.shared_state(&owner(of)).await?),
            Command::DeleteKeys { keys, owner: of } => json(&sessions.delete_keys(&owner(of), keys.clone()).await?),
            Command::DeleteUser { user } => json(&sessions.delete_user_state(tenant.clone(), user.clone()).await?),
        }
    }
}

fn given<'a>(query: impl IntoIterator<Item = (&'a str, Option<String>)>) -> Vec<(&'a str, String)> {
    query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn json(shown: &impl Serialize) -> anyhow::Result<String> {
    serde_json::to_string(shown).context("the sessions cannot be shown")
}

fn list(list: &sessions::List<Line>) -> String {
    let mut text = String::new();
    for SessionSummary { context, user, revision, last_update, keys } in &list.sessions {
        let keys = if keys.is_empty() { "no keys".to_owned() } else { keys.join(", ") };
        text.push_str(&format!("{context}\n  user {user}, revision {revision}, changed {last_update}\n  {keys}\n"));
    }
    if list.sessions.is_empty() {
        text.push_str("no sessions\n");
    }
    if let Some(next) = &list.next {
        text.push_str(&format!("\nThere may be more: --after {next}\n"));
    }
    text
}

fn shown(session: &sessions::Session<Line>) -> String {
    let sessions::Session { context, user, agent, revision, last_update, state, .. } = session;
    format!(
        "Context   {context}\nUser      {user}\nAgent     {agent}\nRevision  {revision}\nChanged   {last_update}\n{}\n",
        pretty_text(&state.to_json_string())
    )
}

fn events(events: &Events<Line>) -> String {
    let mut text = String::new();
    for Event { author, task, timestamp, parts, state_delta, error, .. } in &events.events {
        text.push_str(&format!("{timestamp}  {author}  (task {task})\n"));
        for part in parts {
            // What was read as JSON can be written as JSON.
            text.push_str(&format!("  {}\n", one_line(&serde_json::to_string(part).unwrap_or_default())));
        }
        if !state_delta.is_empty() {
            text.push_str(&format!("  state: {}\n", one_line(&state_delta.to_json_string())));
        }
        if let Some(EventError { code, message }) = error {
            text.push_str(&format!("  error: {code}: {message}\n"));
        }
    }
    if events.events.is_empty() {
        text.push_str("no events\n");
    }
    text
}

fn deleted(deleted: &DeletedSession<Line>) -> String {
    format!("{} of {} is deleted\n", deleted.deleted, deleted.user)
}

fn shared(SharedState { agent, user, state }: &SharedState<Line>) -> String {
    let user =
        user.as_ref().map_or_else(|| "none is named, so no user: keys are shown".to_owned(), ToString::to_string);
    format!("Agent     {agent}\nUser      {user}\n{}\n", pretty_text(&state.to_json_string()))
}

fn deleted_keys(DeletedKeys { deleted, missing }: &DeletedKeys<Line>) -> String {
    let deleted = deleted.iter().map(|key| format!("{key} is deleted\n"));
    deleted.chain(missing.iter().map(|key| format!("{key} was not there\n"))).collect()
}

fn deleted_user_state(DeletedUserState { user, keys }: &DeletedUserState<Line>) -> String {
    format!("{keys} keys of {user} are deleted\n")
}

/// The JSON in one line. `json` may have line breaks between its tokens.
fn one_line(json: &str) -> String {
    // In JSON a raw line break stands between tokens only, so a space can take its place.
    annex_text::line(&annex_text::json(json).replace(['\n', '\r'], " ")).into_owned()
}
