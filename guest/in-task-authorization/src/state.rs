//! The OID4VP parameter `state` for a task. It consists of the task's id and a code that can only be made with the
//! secret. No data is stored for a task before a decision.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac_sha256::HMAC;

/// The text that is signed together with the task's id. Texts that are signed for another purpose begin differently, so
/// their signatures are not accepted in the state of a task.
const PURPOSE: &str = "in-task-authorization state: ";

/// The state of a task: `<task id>.<code>`. The full stop and the code need no escapes in a URI.
pub fn of_task(secret: &str, task_id: &str) -> String {
    format!("{task_id}.{}", URL_SAFE_NO_PAD.encode(HMAC::mac(format!("{PURPOSE}{task_id}"), secret)))
}

/// The task id in a state; `None` if the state was made without the secret.
pub fn task_of<'a>(secret: &str, state: &'a str) -> Option<&'a str> {
    // From the end: a code has no full stop, and an id may have some.
    let (task_id, code) = state.rsplit_once('.')?;
    let code: [u8; 32] = URL_SAFE_NO_PAD.decode(code).ok()?.try_into().ok()?;
    // `verify` takes the same time wherever the difference is, so a code cannot be found byte by byte.
    HMAC::verify(format!("{PURPOSE}{task_id}"), secret, &code).then_some(task_id)
}

/// True if a token equals the secret. Compares in constant time.
pub fn is_secret(secret: &str, token: &str) -> bool {
    HMAC::verify(token, PURPOSE, &HMAC::mac(secret, PURPOSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn a_state_leads_back_to_its_task() {
        for task in ["0199-a", "with.dots", ""] {
            assert_eq!(task_of(SECRET, &of_task(SECRET, task)), Some(task));
        }
    }

    #[test]
    fn a_state_that_somebody_else_made_leads_nowhere() {
        let genuine = of_task(SECRET, "t-1");
        let forged = [
            genuine.replace("t-1", "t-2"),
            of_task("another secret!!", "t-1"),
            "t-1.".to_owned(),
            "t-1".to_owned(),
            format!("{genuine}A"),
            String::new(),
        ];
        for state in forged {
            assert_eq!(task_of(SECRET, &state), None, "{state}");
        }
    }

    #[test]
    fn only_the_secret_is_the_secret() {
        assert!(is_secret(SECRET, SECRET));
        for token in ["", "0123456789abcde", "0123456789abcdeg", "0123456789abcdef\0"] {
            assert!(!is_secret(SECRET, token), "{token:?}");
        }
    }
}
