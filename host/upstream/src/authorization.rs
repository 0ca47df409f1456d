//! The access token of requests to the upstream: the token of this server, or a token in exchange for that of the caller.

use annex_agent::{AgentError, CallerToken, TurnStart, UpstreamContext};
use annex_auth::{AccessToken, Fallback, Grant, OAuthConfig};
use annex_client::{ClientError, ServiceParameters};
use annex_protocol::{A2aError, Secret};
use http::header::AUTHORIZATION;

use crate::failure::{self, NoToken};
use crate::upstream::Upstream;

/// The challenge for a caller without a bearer token.
const CHALLENGE: &str = r#"Bearer realm="annex""#;

/// The reason for refusing a caller without a bearer token.
const NO_BEARER_TOKEN: &str = "the agent behind this server is called with a token of its caller, and this request has no bearer \
                               token that this server has verified";

/// The error text for a turn that continues in another process, which has no token of the caller.
const CALLER_IS_GONE: &str = "The server stopped while the task ran, and the agent behind it is called only with a token of its \
                              caller. Send the message again.";

impl Upstream {
    /// Makes a call with an access token, if the upstream gets one. If the upstream does not accept the token, the call is
    /// made once more with a new token: a request that is not authenticated has not been processed.
    pub(crate) async fn call<T, F>(
        &self,
        remote: &UpstreamContext,
        call: impl Fn(ServiceParameters) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let token = self.access_token(remote).await?;
        // Boxed, because the futures of two calls are large.
        let answered = Box::pin(call(self.authorized(remote, token.as_ref())?)).await;
        let is_refused = answered.as_ref().err().is_some_and(failure::is_unauthenticated);
        let (Some(tokens), Some(token)) = (&self.tokens, token.filter(|_| is_refused)) else { return answered };
        if !tokens.replace(&token) {
            return answered;
        }
        let token = self.access_token(remote).await?;
        Box::pin(call(self.authorized(remote, token.as_ref())?)).await
    }

    /// The access token for a request in this context. `None` if the upstream gets none.
    async fn access_token(&self, remote: &UpstreamContext) -> Result<Option<AccessToken>, ClientError> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let refused = |error: NoToken| ClientError::Refused(error.into());
        let subject = subject(tokens.config(), &remote.caller_token).map_err(refused)?;
        let token = tokens.token(subject).await.map_err(|error| refused(error.into()))?;
        Ok(Some(token))
    }

    fn authorized(
        &self,
        remote: &UpstreamContext,
        token: Option<&AccessToken>,
    ) -> Result<ServiceParameters, ClientError> {
        let mut parameters = self.parameters(remote)?;
        if let Some(token) = token {
            parameters.set_field(AUTHORIZATION, token.header_value())?;
        }
        Ok(parameters)
    }
}

/// Refuses a turn that can have no access token, before anything is read or sent.
///
/// # Errors
/// The refusal, or the failure of a turn whose request was in another process.
pub(crate) fn admit(upstream: &Upstream, remote: &UpstreamContext) -> Result<(), AgentError> {
    check(upstream, &remote.caller_token).map_err(|refusal| {
        if remote.begins_with == TurnStart::LostTurn {
            AgentError::Failed { message: CALLER_IS_GONE.to_owned() }
        } else {
            AgentError::Refused(refusal)
        }
    })
}

/// Checks that there is an access token for this caller, or for a turn without a request of its caller.
///
/// # Errors
/// The refusal for the client.
pub(crate) fn check(upstream: &Upstream, caller: &CallerToken) -> Result<(), A2aError> {
    let Some(tokens) = &upstream.tokens else { return Ok(()) };
    subject(tokens.config(), caller)
        .map(drop)
        .map_err(|_| A2aError::Unauthenticated { reason: NO_BEARER_TOKEN.to_owned(), challenge: CHALLENGE.to_owned() })
}

/// The token to exchange. `None` for the token of this server.
fn subject<'a>(oauth: &OAuthConfig, caller: &'a CallerToken) -> Result<Option<&'a Secret>, NoToken> {
    match (oauth.grant, caller) {
        (Grant::ClientCredentials, _) => Ok(None),
        (Grant::TokenExchange, CallerToken::Verified(token)) => Ok(Some(token)),
        (Grant::TokenExchange, CallerToken::Gone) if oauth.fallback == Some(Fallback::ClientCredentials) => Ok(None),
        (Grant::TokenExchange, CallerToken::Absent | CallerToken::Gone) => Err(NoToken::NoCaller),
    }
}
