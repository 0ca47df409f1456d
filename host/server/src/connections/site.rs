//! The service behind a listener.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use tower::ServiceExt;

use crate::connections::network::Network;
use crate::connections::peer::Peer;

/// Answers the requests of all connections of a listener.
pub(crate) trait Site: Clone + Send + Sync + 'static {
    /// Answers one request of `peer`.
    fn answer(&self, request: Request<Incoming>, peer: Peer) -> impl Future<Output = Response> + Send;

    /// Called when a connection from `network` ends because the client did not speak HTTP. At most once per connection.
    fn refuse_malformed(&self, _network: Network) {}
}

impl Site for Router {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response {
        let mut request = request.map(Body::new);
        // The network is that of the socket's peer. A client could write any address into a header field such as
        // `X-Forwarded-For`.
        request.extensions_mut().insert(peer.network);
        request.extensions_mut().insert(peer);
        let Ok(response) = self.clone().oneshot(request).await;
        response
    }
}
