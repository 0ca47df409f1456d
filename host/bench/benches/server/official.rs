//! The official server in Rust, with its default handler and store, on the same paths as Annex. Its agent echoes.

use std::sync::Arc;

use a2a::{
    A2AError, Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore};
use annex_test_support::STATE_INJECTION;
use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::ListenerExt;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::net::TcpListener;

pub(crate) struct Echo;

impl AgentExecutor for Echo {
    fn execute(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let text = context.message.as_ref().and_then(|message| message.text()).unwrap_or_default().to_owned();
        let artifact = Artifact {
            artifact_id: "echo".to_owned(),
            name: Some("echo".to_owned()),
            description: None,
            parts: vec![Part::text(text)],
            metadata: None,
            extensions: None,
        };
        stream::iter(events(&context, artifact).map(Ok)).boxed()
    }

    fn cancel(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        canceled(&context)
    }
}

/// The events of a turn with one artifact. They are the same as those of an Annex agent.
pub(crate) fn events(context: &ExecutorContext, artifact: Artifact) -> [StreamResponse; 3] {
    let update = TaskArtifactUpdateEvent {
        task_id: context.task_id.clone(),
        context_id: context.context_id.clone(),
        artifact,
        append: Some(false),
        last_chunk: Some(true),
        metadata: None,
    };
    [status(context, TaskState::Working), StreamResponse::ArtifactUpdate(update), status(context, TaskState::Completed)]
}

pub(crate) fn canceled(context: &ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
    stream::iter([Ok(status(context, TaskState::Canceled))]).boxed()
}

fn status(context: &ExecutorContext, state: TaskState) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: context.task_id.clone(),
        context_id: context.context_id.clone(),
        status: TaskStatus { state, message: None, timestamp: None },
        metadata: None,
    })
}

pub(crate) async fn serve(
    listener: TcpListener,
    agent: impl AgentExecutor,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let handler = Arc::new(DefaultRequestHandler::new(agent, InMemoryTaskStore::new()));
    let router = Router::new()
        .nest("/a2a/jsonrpc", jsonrpc_router(Arc::clone(&handler)))
        .nest("/a2a/rest", rest_router(handler))
        .layer(middleware::from_fn(name_extension));
    // As in Annex: small answers are sent at once.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).with_graceful_shutdown(shutdown).await?)
}

/// Adds the header with the active extensions, because the official server knows no extensions.
async fn name_extension(request: Request, next: Next) -> Response {
    let is_asked = request.headers().get("a2a-extensions").is_some_and(|uri| uri == STATE_INJECTION);
    let mut response = next.run(request).await;
    if is_asked {
        response.headers_mut().insert("a2a-extensions", HeaderValue::from_static(STATE_INJECTION));
    }
    response
}
