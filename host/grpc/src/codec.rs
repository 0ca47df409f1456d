//! Encoding and decoding of messages. If a request cannot be decoded, its sender is at fault, and the error says how to fix the
//! request.

use std::marker::PhantomData;
use std::sync::Arc;

use annex_protocol::A2aError;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::status;

/// The codec of all calls, in the client and in the server.
pub(crate) struct A2aCodec<E, D>(PhantomData<(E, D)>);

impl<E, D> Default for A2aCodec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E, D> Codec for A2aCodec<E, D>
where
    E: Message + Send + 'static,
    D: Message + Default + Send + 'static,
{
    type Encode = E;
    type Decode = D;
    type Encoder = ProstEncoder<E>;
    type Decoder = Reader<D>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Reader(PhantomData)
    }
}

pub(crate) struct Reader<D>(PhantomData<D>);

impl<D: Message + Default> Decoder for Reader<D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        D::decode(bytes).map(Some).map_err(|error| DecodeFailure::of(&error).into())
    }
}

/// The error for bytes that are not a message of the rpc.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeFailure {
    #[error(
        "the message nests deeper than 100 levels, the limit of protobuf: each object in `data` or metadata has three \
         levels, each list two; nest less, or send the deep value as text"
    )]
    TooDeep,
    #[error("the message is not one of this rpc: {reason}")]
    Misshapen { reason: String },
}

impl DecodeFailure {
    fn of(error: &prost::DecodeError) -> Self {
        // Only the text of prost's error tells its kind. The path of fields in front of it has up to a hundred names
        // here.
        let text = error.to_string();
        if text.ends_with("recursion limit reached") {
            return Self::TooDeep;
        }
        let reason = text.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&text);
        Self::Misshapen { reason: reason.to_owned() }
    }
}

/// Converts the failure to a status, and keeps the failure as the source of the status. A server sends the status to
/// the client whose request could not be decoded. If a client cannot decode an answer, it finds the failure as the
/// source of the status.
impl From<DecodeFailure> for Status {
    fn from(unreadable: DecodeFailure) -> Self {
        let mut status = status::of(&A2aError::InvalidRequest { reason: unreadable.to_string() });
        status.set_source(Arc::new(unreadable));
        status
    }
}
