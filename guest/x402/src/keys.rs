//! The keys of the metadata, and the states of a payment.

/// The state of the payment.
pub const STATUS: &str = "x402.payment.status";
/// The `x402PaymentRequiredResponse`.
pub const REQUIRED: &str = "x402.payment.required";
/// The client's `PaymentPayload`.
pub const PAYLOAD: &str = "x402.payment.payload";
/// All receipts of the task.
pub const RECEIPTS: &str = "x402.payment.receipts";
/// The error code of a failed payment.
pub const ERROR: &str = "x402.payment.error";

/// All keys, which the extension owns.
pub const ALL: [&str; 5] = [STATUS, REQUIRED, PAYLOAD, RECEIPTS, ERROR];

/// The client has a payment in its message.
pub const SUBMITTED: &str = "payment-submitted";
/// The client does not pay.
pub const REJECTED: &str = "payment-rejected";
