//! Payments on Solana: transactions that a client signs in part, and that the facilitator completes.

use annex_sdk::Entry;
use annex_sdk::testing::{Bucket, Host};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::samples::{
    answers, error, host_with, other_task, parameters, pay, payment, plain, refused, status, turn, with,
};
use crate::{keys, solana};

/// The message of a transaction: its version, a header, three accounts, a block, an instruction, and a table.
fn message(block: u8, is_versioned: bool) -> Vec<u8> {
    let mut message = if is_versioned { vec![0x80] } else { Vec::new() };
    message.extend([2, 0, 1, 3]);
    message.extend([7; 3 * 32]);
    message.extend([block; 32]);
    message.extend([1, 2, 2, 0, 1]);
    // 130 bytes of data, whose number needs two groups.
    message.extend([0x82, 0x01]);
    message.extend([9; 130]);
    if is_versioned {
        message.push(1);
        message.extend([5; 32]);
        message.extend([1, 0, 0]);
    }
    message
}

/// A transaction with two signatures, of which the first is the facilitator's.
fn transaction(first: u8, message: &[u8]) -> Vec<u8> {
    [&[2][..], &[first; 64], &[0xab; 64], message].concat()
}

fn paid(bytes: &[u8]) -> Value {
    paid_by(&STANDARD.encode(bytes))
}

fn paid_by(text: &str) -> Value {
    json!({"x402Version": 1, "scheme": "exact", "network": "solana", "payload": {"transaction": text}})
}

/// A host with a task that waits, and with a facilitator that names this transaction in its receipts.
fn host(settled: &str) -> Host {
    let solana = json!({
        "network": "solana", "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "amount": "1000",
        "pay_to": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
    });
    let settled = json!({"success": true, "transaction": settled, "network": "solana", "payer": "Payer1"});
    let host = host_with(&with(parameters(), "/accepts/1", solana));
    let host = host.http(answers(&json!({"isValid": true, "payer": "Payer1"}), &settled));
    turn(&host, &plain()).unwrap();
    host
}

fn next_task(host: Host) -> Host {
    let host = other_task(host);
    turn(&host, &plain()).unwrap();
    host
}

#[test]
fn a_transaction_is_taken_once_whatever_is_in_the_place_of_the_facilitators_signature() {
    for is_versioned in [false, true] {
        let message = message(1, is_versioned);
        let host = host("5Tx");
        assert_eq!(pay(&host, &paid(&transaction(0, &message))), Ok(Entry::Proceed));
        let receipt = json!({"success": true, "transaction": "5Tx", "network": "solana", "payer": "Payer1"});
        assert_eq!(status(&host, "TASK_STATE_WORKING")[keys::RECEIPTS], json!([receipt]));
        let host = next_task(host);
        assert_eq!(error(pay(&host, &paid(&transaction(1, &message)))), "DUPLICATE_NONCE");
        assert_eq!(host.sent().iter().filter(|sent| sent.url.ends_with("/settle")).count(), 1);
    }
}

#[test]
fn two_payments_that_are_settled_by_one_transaction_count_once() {
    let host = host("5Tx");
    assert_eq!(pay(&host, &paid(&transaction(0, &message(1, true)))), Ok(Entry::Proceed));
    assert_eq!(host.keys(Bucket::Lasting).len(), 4);
    let host = next_task(host);
    assert_eq!(error(pay(&host, &paid(&transaction(0, &message(2, true))))), "DUPLICATE_NONCE");
    let settled = json!({"success": true, "transaction": "6Tx", "network": "solana", "payer": "Payer1"});
    let host = host.http(answers(&json!({"isValid": true, "payer": "Payer1"}), &settled));
    assert_eq!(pay(&host, &paid(&transaction(0, &message(3, true)))), Ok(Entry::Proceed));
}

#[test]
fn a_transaction_can_be_written_in_one_way_only() {
    let bytes = transaction(0, &message(1, true));
    let text = STANDARD.encode(&bytes);
    assert_eq!(solana::message(&text), Some(message(1, true)));
    let trailing = [&bytes[..], &[0]].concat();
    // The number of signatures in two groups, of which the second has no bits.
    let long_number = [&[0x82, 0x00], &bytes[1..]].concat();
    let mut other_version = bytes.clone();
    other_version[129] = 0x81;
    let one_too_many = [&[2; 1][..], &[0; 1_232]].concat();
    let mut texts: Vec<String> = [&trailing, &long_number, &other_version, &bytes[..200].to_vec(), &one_too_many]
        .map(|bytes| STANDARD.encode(bytes))
        .to_vec();
    // Bits of the last digit that belong to no byte, and a text without padding.
    let padded = STANDARD.encode(transaction(0, &message(1, false)));
    let stripped = padded.trim_end_matches('=');
    assert!(solana::message(&padded).is_some() && stripped.len() < padded.len(), "{padded}");
    let spare = ["B", "R", "h", "x", "F", "V", "l"]
        .map(|digit| format!("{}{digit}{}", &stripped[..stripped.len() - 1], &padded[stripped.len()..]));
    texts.extend(spare);
    texts.extend([stripped.to_owned(), String::new(), format!("{text}\n")]);
    for text in texts {
        assert_eq!(solana::message(&text), None, "{text}");
    }
    let wrong = json!({keys::STATUS: "payment-submitted", keys::PAYLOAD: paid(&trailing)});
    let found = refused(&host("5Tx"), wrong);
    assert!(found[0].contains("/payload/transaction must be a transaction of Solana"), "{found:?}");
}

#[test]
fn a_transaction_on_another_network_is_refused() {
    let transaction = paid(&transaction(0, &message(1, true)))["payload"].take();
    let wrong = json!({keys::STATUS: "payment-submitted", keys::PAYLOAD: with(payment(), "/payload", transaction)});
    let found = refused(&host("5Tx"), wrong);
    assert!(found.len() == 1 && found[0].contains("only on networks that begin with `solana`"), "{found:?}");
}
