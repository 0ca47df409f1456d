//! The first bytes of a connection, which show its version of HTTP. They are read once and then replayed to hyper.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// The preface of HTTP/2 with prior knowledge (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first byte of a TLS connection: the type of a handshake record (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// The bytes that were read from a connection to find out its version.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    bytes: [u8; HTTP2_PREFACE.len()],
    read: usize,
    replayed: usize,
}

impl Beginning {
    /// Reads until the version is clear: the whole preface, or the first byte that differs from the preface. The task
    /// sleeps until the client sends more bytes.
    ///
    /// # Errors
    /// The connection ends or breaks before the version is clear.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut beginning = Self::default();
        // An empty text is a beginning of the preface too, so at least one byte is read.
        while HTTP2_PREFACE.starts_with(beginning.unreplayed()) && !beginning.is_http2() {
            // At most the length of the preface is read, so that the buffer for the replay has room for all bytes.
            let room = beginning.bytes.get_mut(beginning.read..).unwrap_or_default();
            match stream.read(room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => beginning.read += count,
            }
        }
        Ok(beginning)
    }

    /// True if the client speaks HTTP/2. Any other client is served over HTTP/1.
    pub(crate) fn is_http2(&self) -> bool {
        self.unreplayed() == HTTP2_PREFACE
    }

    /// True if the client begins a TLS handshake.
    pub(crate) fn is_tls(&self) -> bool {
        self.unreplayed().first() == Some(&TLS_HANDSHAKE)
    }

    /// True if the client speaks HTTP/1, as far as the first byte shows.
    pub(crate) fn is_http1(&self) -> bool {
        !self.is_http2() && self.unreplayed().first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Fills the buffer with the bytes that follow the last replayed byte. Returns true if any byte was copied.
    pub(crate) fn replay(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let bytes = self.unreplayed();
        let count = bytes.len().min(buffer.remaining());
        buffer.put_slice(bytes.get(..count).unwrap_or_default());
        self.replayed += count;
        count > 0
    }

    fn unreplayed(&self) -> &[u8] {
        self.bytes.get(self.replayed..self.read).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
    use tokio::time::{sleep, timeout};

    use super::{Beginning, HTTP2_PREFACE};

    /// Counts the reads of a stream.
    struct ReadCounter {
        stream: DuplexStream,
        looks: usize,
    }

    impl AsyncRead for ReadCounter {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            self.looks += 1;
            Pin::new(&mut self.stream).poll_read(context, buffer)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sent_the_beginning_of_a_preface_is_not_looked_at_again_before_it_sends_more() {
        let (mut client, stream) = duplex(64);
        let mut counted = ReadCounter { stream, looks: 0 };
        client.write_all(b"P").await.expect("sent");
        // Another task always has work, as in a server.
        let others = tokio::spawn(async {
            for _ in 0..1_000 {
                sleep(Duration::from_millis(10)).await;
            }
        });
        let hour = Duration::from_secs(3600);
        timeout(hour, Beginning::read(&mut counted)).await.expect_err("no version comes");
        others.await.expect("no panic");
        // One read returns the byte, one waits for more, and one follows at the timeout.
        assert!(counted.looks <= 3, "{} looks", counted.looks);
    }

    #[tokio::test]
    async fn the_version_is_clear_with_the_first_byte_that_does_not_match() {
        let cases: [(&[u8], bool); 5] = [
            (b"G", false),
            (b"POST / HTTP/1.1\r\n", false),
            (b"PRI * HTTP/1.1\r\n", false),
            (HTTP2_PREFACE, true),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and a frame", true),
        ];
        for (sent, is_http2) in cases {
            let (mut client, mut stream) = duplex(64);
            // One byte at a time, and the connection stays open.
            let send = async {
                for byte in sent {
                    client.write_all(&[*byte]).await.expect("sent");
                    tokio::task::yield_now().await;
                }
            };
            let (beginning, ()) = futures::future::join(Beginning::read(&mut stream), send).await;
            let mut beginning = beginning.expect("a version");
            assert_eq!(beginning.is_http2(), is_http2, "{sent:?}");
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            assert!(beginning.replay(&mut buffer) && !beginning.replay(&mut buffer));
            assert!(sent.starts_with(buffer.filled()) && !buffer.filled().is_empty());
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_it_has_a_version_is_an_error() {
        let (mut client, mut stream) = duplex(64);
        client.write_all(b"PRI").await.expect("sent");
        drop(client);
        Beginning::read(&mut stream).await.expect_err("no version");
    }
}
