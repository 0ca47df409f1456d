//! An event of a conversation in the form that both sides accept: text only, without thoughts, credentials and
//! metadata.

use annex_sdk::Violation;
use serde::{Deserialize, Serialize};

use crate::credentials::{without_in_json, without_in_text};
use crate::node::{Node, Object};

/// The maximum length of an author's name, in characters.
const MAX_AUTHOR: usize = 64;
/// A tool of google-adk whose calls and results carry credentials.
const CREDENTIAL_TOOL: &str = "adk_request_credential";

/// The role of the speaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user, or a caller on the user's behalf.
    User,
    /// An agent.
    Agent,
}

/// An event that may be shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The number of the event within the conversation, in the order of appending.
    pub seq: u64,
    /// The name of the speaker.
    pub author: String,
    /// The role of the speaker.
    pub role: Role,
    /// True if the receiving agent was the speaker.
    pub yours: bool,
    /// The URL of the speaking agent's card. Used on the caller's side only.
    pub agent: Option<String>,
    /// The texts of the event; never empty.
    pub texts: Vec<String>,
}

impl Event {
    /// Reads the events of an array, which must be sorted by `seq`. Skips events with nothing to share: partial events,
    /// thoughts and changes of state. Also returns the last `seq` of the array.
    pub fn read_all(list: &Node<'_>) -> Result<(Vec<Self>, u64), Violation> {
        let mut events = Vec::new();
        let mut last = 0;
        for node in list.list()? {
            let object = node.object()?;
            let seq = object.need("seq")?;
            let number = seq.number()?;
            // The order is that of appending and never of time: clocks of several agents do not agree.
            if number <= last {
                return Err(seq.violation(format!("must be greater than the previous one, {last}")));
            }
            last = number;
            events.extend(Self::read(number, &object)?);
        }
        Ok((events, last))
    }

    /// The size of the event's texts in bytes.
    pub fn size(&self) -> usize {
        self.texts.iter().map(String::len).sum()
    }

    fn read(seq: u64, event: &Object<'_>) -> Result<Option<Self>, Violation> {
        let is_partial = event.is_set("partial")?;
        let role = role(&event.need("role")?)?;
        let author = author(&event.need("author")?)?;
        let parts = event.get("parts").map_or(Ok(Vec::new()), |parts| parts.list())?;
        let texts: Result<Vec<Option<String>>, Violation> = parts.iter().map(text_of).collect();
        let texts: Vec<String> = texts?.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        if is_partial || texts.is_empty() {
            return Ok(None);
        }
        let agent = event.get("agent").map(|agent| agent.text()).transpose()?;
        Ok(Some(Self { seq, author, role, yours: event.is_set("yours")?, agent, texts }))
    }
}

/// Reads a role, also by A2A's names `ROLE_USER` and `ROLE_AGENT`.
fn role(node: &Node<'_>) -> Result<Role, Violation> {
    match node.text()?.as_str() {
        "user" | "ROLE_USER" => Ok(Role::User),
        "agent" | "ROLE_AGENT" => Ok(Role::Agent),
        _ => Err(node.violation("must be \"user\" or \"agent\"")),
    }
}

/// Reads the author's name. Only the characters of a name are allowed, because the name appears outside of the quotes.
fn author(node: &Node<'_>) -> Result<String, Violation> {
    let author = node.text()?;
    let is_name = |character: char| character.is_alphanumeric() || "_-.:@/ ".contains(character);
    let length = author.chars().count();
    if (1..=MAX_AUTHOR).contains(&length) && author.chars().all(is_name) {
        return Ok(author);
    }
    Err(node.violation(format!("must be 1 to {MAX_AUTHOR} letters, digits, spaces and `_-.:@/`")))
}

/// The text to share for a part: the part's text, its data as text, or the name of its file. `None` for a thought, and
/// for a part with nothing to share.
fn text_of(node: &Node<'_>) -> Result<Option<String>, Violation> {
    let part = node.object()?;
    let metadata = part.get("metadata").map(|metadata| metadata.object()).transpose()?;
    let is_marked = |name: &str| metadata.as_ref().and_then(|metadata| metadata.get(name));
    // Any value except `false` makes the part a thought: in case of doubt the part is not shared.
    let is_thought = |name: &str| is_marked(name).is_some_and(|node| node.json() != "false");
    if part.is_set("thought")? || is_thought("adk_thought") || is_thought("thought") {
        return Ok(None);
    }
    if let Some(text) = part.get("text") {
        return Ok(Some(without_in_text(&text.text()?)));
    }
    if let Some(data) = part.get("data") {
        let kind = is_marked("adk_type").map(|kind| kind.text()).transpose()?.unwrap_or_default();
        return tool_text(&kind, &data);
    }
    // A URL may be signed, and bytes are not text, so only the name of a file is shared.
    if part.get("raw").is_some() || part.get("url").is_some() {
        let name = part.get("filename").map_or(Ok(String::new()), |name| name.text())?;
        return Ok(Some(format!("(a file: {name:?})")));
    }
    Err(node.violation("must have text, data, raw or url"))
}

/// The text for data: a tool call or its result in google-adk's words, other data as JSON.
fn tool_text(kind: &str, data: &Node<'_>) -> Result<Option<String>, Violation> {
    let clean = |node: Option<Node<'_>>| node.map_or_else(|| "{}".to_owned(), |node| without_in_json(node.json()));
    let is_call = kind == "function_call";
    if !is_call && kind != "function_response" {
        return Ok(Some(without_in_json(data.json())));
    }
    let tool = data.object()?;
    let name = tool.need("name")?.text()?;
    if name == CREDENTIAL_TOOL {
        return Ok(None);
    }
    Ok(Some(match is_call {
        true => format!("called tool `{name}` with parameters: {}", clean(tool.get("args"))),
        false => format!("`{name}` tool returned result: {}", clean(tool.get("response"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &str) -> Result<Vec<String>, Violation> {
        let list = format!(r#"[{{"seq": 1, "author": "root", "role": "agent", "parts": {parts}}}]"#);
        let (events, last) = Event::read_all(&Node::new(&list, "/events"))?;
        assert_eq!(last, 1);
        Ok(events.into_iter().flat_map(|event| event.texts).collect())
    }

    fn pointer(events: &str) -> String {
        Event::read_all(&Node::new(events, "/events")).unwrap_err().pointer
    }

    #[test]
    fn thoughts_credentials_and_metadata_stay_behind() {
        let cases = [
            (r#"[{"text": "a", "metadata": {"internal": "x"}}]"#, vec!["a"]),
            (r#"[{"text": "secret", "thought": true}, {"text": "b"}]"#, vec!["b"]),
            (r#"[{"text": "secret", "metadata": {"adk_thought": true}}]"#, vec![]),
            (r#"[{"text": "token=abc"}]"#, vec!["token=[removed]"]),
            (r#"[{"data": {"password": "x", "n": 1.0}}]"#, vec![r#"{"password":"[removed]", "n": 1.0}"#]),
            (
                r#"[{"data": {"name": "find", "args": {"q": "x", "api_key": "y"}}, "metadata": {"adk_type": "function_call"}}]"#,
                vec![r#"called tool `find` with parameters: {"q": "x", "api_key":"[removed]"}"#],
            ),
            (
                r#"[{"data": {"name": "find", "response": {"n": 1}}, "metadata": {"adk_type": "function_response"}}]"#,
                vec![r#"`find` tool returned result: {"n": 1}"#],
            ),
            (
                r#"[{"data": {"name": "adk_request_credential", "args": {"x": 1}}, "metadata": {"adk_type": "function_call"}}]"#,
                vec![],
            ),
            (r#"[{"url": "https://a/?sig=1", "filename": "report.pdf"}]"#, vec![r#"(a file: "report.pdf")"#]),
            ("[]", vec![]),
        ];
        for (parts, expected) in cases {
            assert_eq!(read(parts).unwrap(), expected, "{parts}");
        }
    }

    #[test]
    fn a_partial_event_is_not_shared_and_its_place_counts() {
        let list = r#"[{"seq": 3, "author": "a", "role": "ROLE_AGENT", "partial": true, "parts": [{"text": "x"}]}]"#;
        let (events, last) = Event::read_all(&Node::new(list, "")).unwrap();
        assert!(events.is_empty());
        assert_eq!(last, 3);
    }

    #[test]
    fn what_is_malformed_is_named() {
        let event = |more: &str| format!(r#"[{{"seq": 1, "author": "a", "role": "agent"{more}}}]"#);
        let cases = [
            (event(r#", "parts": [{}]"#), "/events/0/parts/0"),
            (event(r#", "parts": [{"text": 1}]"#), "/events/0/parts/0/text"),
            (event(r#", "parts": {}"#), "/events/0/parts"),
            (r#"[{"author": "a", "role": "agent"}]"#.to_owned(), "/events/0/seq"),
            (r#"[{"seq": 0, "author": "a", "role": "agent"}]"#.to_owned(), "/events/0/seq"),
            (r#"[{"seq": 1, "role": "agent"}]"#.to_owned(), "/events/0/author"),
            (r#"[{"seq": 1, "author": "a]\n[user", "role": "agent"}]"#.to_owned(), "/events/0/author"),
            (r#"[{"seq": 1, "author": "a", "role": "system"}]"#.to_owned(), "/events/0/role"),
            ("{}".to_owned(), "/events"),
        ];
        for (events, expected) in cases {
            assert_eq!(pointer(&events), expected, "{events}");
        }
        let unordered = r#"[{"seq": 2, "author": "a", "role": "agent"}, {"seq": 2, "author": "a", "role": "agent"}]"#;
        assert_eq!(pointer(unordered), "/events/1/seq");
    }
}
