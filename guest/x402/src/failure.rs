//! The failures of payments: a code for programs and a reason for people.

/// The error code of a failed payment, in `x402.payment.error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The wallet has too little.
    InsufficientFunds,
    /// The signature is wrong.
    InvalidSignature,
    /// The payment or the offer has expired.
    ExpiredPayment,
    /// The payment was submitted before.
    DuplicateNonce,
    /// The payment is for another network.
    NetworkMismatch,
    /// The payment has another amount.
    InvalidAmount,
    /// The payment was not settled, or nobody knows whether it was.
    SettlementFailed,
    /// The payment has another fault. This code is not in the specification's list.
    InvalidPayment,
    /// The facilitator gave no usable answer, and nothing was settled. This code is not in the specification's list.
    FacilitatorFailed,
}

impl Code {
    /// The code's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::InsufficientFunds => "INSUFFICIENT_FUNDS",
            Self::InvalidSignature => "INVALID_SIGNATURE",
            Self::ExpiredPayment => "EXPIRED_PAYMENT",
            Self::DuplicateNonce => "DUPLICATE_NONCE",
            Self::NetworkMismatch => "NETWORK_MISMATCH",
            Self::InvalidAmount => "INVALID_AMOUNT",
            Self::SettlementFailed => "SETTLEMENT_FAILED",
            Self::InvalidPayment => "INVALID_PAYMENT",
            Self::FacilitatorFailed => "FACILITATOR_FAILED",
        }
    }

    /// The code for a facilitator's reason, such as `invalid_exact_evm_payload_signature`. Facilitators agree on these
    /// names only in part, so the words in them decide.
    pub fn of_reason(reason: &str, otherwise: Self) -> Self {
        let reason = reason.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        if has(&["insufficient"]) {
            Self::InsufficientFunds
        } else if has(&["nonce", "already_used", "duplicate"]) {
            Self::DuplicateNonce
        } else if has(&["signature"]) {
            Self::InvalidSignature
        } else if has(&["expired", "valid_before", "valid_after", "deadline"]) {
            Self::ExpiredPayment
        } else if has(&["network"]) {
            Self::NetworkMismatch
        } else if has(&["value", "amount"]) {
            Self::InvalidAmount
        } else {
            otherwise
        }
    }
}

/// A failed payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code for programs.
    pub code: Code,
    /// The reason for people: a part of a sentence, such as `the payment has expired`.
    pub reason: String,
    /// False if the payment may have been settled. The client is then not asked to pay again.
    pub may_pay_again: bool,
}

impl Failure {
    /// A failure after which the client may pay again.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), may_pay_again: true }
    }

    /// The error for a settlement whose outcome is unknown.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { code: Code::SettlementFailed, reason: reason.into(), may_pay_again: false }
    }
}
