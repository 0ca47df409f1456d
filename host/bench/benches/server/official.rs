//! The official server in Rust with the same agent, its default handler and its store, on the same paths.

use std::sync::Arc;

use a2a::{
    A2AError, Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore};
use axum::Router;
use axum::serve::ListenerExt;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::net::TcpListener;

struct Echo;

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
        let update = TaskArtifactUpdateEvent {
            task_id: context.task_id.clone(),
            context_id: context.context_id.clone(),
            artifact,
            append: Some(false),
            last_chunk: Some(true),
            metadata: None,
        };
        let events = [
            status(&context, TaskState::Working),
            StreamResponse::ArtifactUpdate(update),
            status(&context, TaskState::Completed),
        ];
        stream::iter(events.map(Ok)).boxed()
    }

    fn cancel(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        stream::iter([Ok(status(&context, TaskState::Canceled))]).boxed()
    }
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
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let handler = Arc::new(DefaultRequestHandler::new(Echo, InMemoryTaskStore::new()));
    let router = Router::new()
        .nest("/a2a/jsonrpc", jsonrpc_router(Arc::clone(&handler)))
        .nest("/a2a/rest", rest_router(handler));
    // As Annex does: small answers go out at once.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).with_graceful_shutdown(shutdown).await?)
}
