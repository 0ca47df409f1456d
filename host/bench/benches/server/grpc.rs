//! A minimal gRPC client on one connection: HTTP/2 frames only.

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use h2::RecvStream;

use crate::http1;
use crate::request::{Request, TEXT};

/// Makes the call `count` times over a new connection. Each call begins after the answer to the previous one.
pub(crate) async fn work(address: &str, request: &Request, count: usize) -> anyhow::Result<()> {
    let (method, message) = request.grpc_call();
    let (mut client, connection) = h2::client::handshake(http1::connect(address).await?).await?;
    tokio::spawn(connection);
    for _ in 0..count {
        client = client.ready().await?;
        let head = http::Request::post(format!("http://{address}{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("a2a-version", "1.0")
            .body(())?;
        let (response, mut body) = client.send_request(head, false)?;
        body.send_data(Bytes::clone(&message), true)?;
        let answer = read(response.await?.into_body()).await?;
        let echoed = answer.windows(TEXT.len()).any(|window| window == TEXT.as_bytes());
        anyhow::ensure!(echoed, "{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Reads the messages of an answer. Fails if the call has failed.
async fn read(mut body: RecvStream) -> anyhow::Result<BytesMut> {
    let mut answer = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        answer.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?.context("trailers")?;
    let status = trailers.get("grpc-status").context("a status")?;
    anyhow::ensure!(status == "0", "{trailers:?}");
    Ok(answer)
}
