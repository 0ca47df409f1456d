//! Sends one message, prints the answer and finds out how the task ended.

use annex_client::{Agent, ClientError, ServiceParameters};
use annex_protocol::{
    A2aError, AgentCard, AgentExtension, ExtensionUri, Json, Message, SecurityScheme, SendMessageRequest,
    StreamResponse,
};
use futures::TryStreamExt;
use serde::Deserialize;

use crate::exit::Failure;
use crate::pretty::pretty;
use crate::state::takes_state;
use crate::{output, shell};

mod outcome;
mod transcript;

pub(crate) use outcome::Outcome;
pub(crate) use transcript::Transcript;

/// The maximum size of the details of an agent's error that are shown, in bytes.
const MAX_DETAILS: usize = 16 << 10;

/// Sends a message. With `streams`, calls `take` with each event of the answer, otherwise once with the whole answer.
/// Returns the extensions that the agent reports as active.
///
/// # Errors
/// When the call fails, or `take` returns an error.
pub(crate) async fn exchange(
    agent: &Agent,
    parameters: ServiceParameters,
    message: Message,
    streams: bool,
    mut take: impl FnMut(StreamResponse) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<ExtensionUri>> {
    let request = SendMessageRequest { message, ..SendMessageRequest::default() };
    if !streams {
        let answer = agent.send_message(parameters, request).await?;
        take(answer.value.into())?;
        return Ok(answer.active);
    }
    let mut answer = agent.send_streaming_message(parameters, request).await?;
    while let Some(event) = answer.value.try_next().await? {
        take(event)?;
    }
    Ok(answer.active)
}

/// True if the agent's card offers streaming.
pub(crate) fn offers_stream(card: &AgentCard) -> bool {
    card.capabilities.streaming == Some(true)
}

/// Prints a remark for each requested extension that was not active.
pub(crate) fn note_inactive(requested: &[ExtensionUri], active: &[ExtensionUri]) {
    for uri in requested.iter().filter(|uri| !active.contains(uri)) {
        output::note(&format!("asked for and not reported active: {uri}"));
    }
}

/// Extends the text of an agent's error. If credentials or extensions are missing, adds the options with which this
/// command sends them. Otherwise adds the details in the agent's answer.
pub(crate) fn explain(error: anyhow::Error, card: &AgentCard, requested: &[ExtensionUri]) -> anyhow::Error {
    if error.downcast_ref::<ClientError>().is_some_and(wants_credentials) {
        let options: Vec<String> = credentials(card).iter().map(|option| format!("\n  {option}")).collect();
        let how = if options.len() > 1 { "with one of these options" } else { "with this option" };
        if options.is_empty() {
            return error;
        }
        return Failure::Refused.error(format!("{error:#}\nsend the credentials {how}:{}", options.concat()));
    }
    let code = A2aError::ExtensionSupportRequired { missing: Vec::new(), unknown: Vec::new() }.code();
    let answered = error.downcast_ref::<ClientError>().and_then(ClientError::agent);
    let Some(answered) = answered else { return error };
    if answered.code != Some(i64::from(code)) {
        let details: String = answered.details.iter().filter(|detail| !is_told(detail)).map(shown).collect();
        let details = annex_text::cut(details, MAX_DETAILS);
        if details.is_empty() {
            return error;
        }
        return Failure::Refused.error(format!("{error:#}{details}"));
    }
    let declared = card.capabilities.extensions.iter().filter(|extension| extension.required);
    let missing = declared.filter(|extension| !requested.contains(&extension.uri));
    let word = |extension: &AgentExtension| shell::word(extension.uri.as_str()).into_owned();
    let option = |extension: &AgentExtension| {
        if takes_state(extension) {
            format!("\n  --extension {} --state JSON (--template prints what it looks like)", word(extension))
        } else {
            format!("\n  --extension {}", word(extension))
        }
    };
    let options: String = missing.map(option).collect();
    if options.is_empty() {
        return error;
    }
    Failure::Refused.error(format!("{error:#}\nadd to this command:{options}"))
}

/// True if the agent refused the call because the caller is not authenticated.
fn wants_credentials(error: &ClientError) -> bool {
    let is_status = matches!(error, ClientError::Status { status, .. } if status.as_u16() == 401);
    is_status || error.agent().is_some_and(|answered| answered.reason.as_deref() == Some("UNAUTHENTICATED"))
}

/// The options with which this command sends the credentials that the card asks for. Credentials for which it has no
/// option are left out.
fn credentials(card: &AgentCard) -> Vec<String> {
    let mut options = Vec::new();
    for option in card.security_schemes.values().filter_map(credential) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    options
}

/// The `annex send` options that pass credentials of this kind, with placeholders. `None` for credentials that go
/// neither into a header field nor into the TLS handshake.
pub(crate) fn credential(scheme: &SecurityScheme) -> Option<String> {
    let field = match scheme {
        SecurityScheme::ApiKey(key) if key.location == "header" => format!("{}: KEY", key.name),
        SecurityScheme::HttpAuth(http) => format!("authorization: {} CREDENTIALS", http.scheme),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => "authorization: Bearer TOKEN".to_owned(),
        SecurityScheme::MutualTls(_) => return Some("--client-cert CERTIFICATE --client-key KEY".to_owned()),
        SecurityScheme::ApiKey(_) => return None,
    };
    Some(format!("--header {}", shell::word(&field)))
}

/// True for a detail of an error that the error's own text already reports.
fn is_told(detail: &Json) -> bool {
    #[derive(Deserialize)]
    struct DetailType {
        #[serde(rename = "@type")]
        name: String,
    }
    // The name of a type stands behind an authority, as in `type.googleapis.com/google.rpc.ErrorInfo`.
    let told = ["google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.RetryInfo"];
    detail.to::<DetailType>().is_ok_and(|detail| told.iter().any(|name| detail.name.ends_with(name)))
}

fn shown(detail: &Json) -> String {
    format!("\n{}", pretty(detail))
}
