//! Names that clients and operators choose: whatever characters they have, each names something of its own.

use annex_conversation::{ConversationKey, ConversationQuery};
use annex_protocol::TaskId;

use crate::support::{Backend, append_all, event, ids, latest};

on_every_store!(names_of_any_characters_name_each_their_own, the_longest_names_and_keys_are_kept);

const NAMES: [&str; 24] = [
    "a",
    "A",
    "ä",
    "a\u{308}",
    "ａ",
    "ß",
    "ss",
    "a b",
    "a  b",
    "a/b",
    "a%",
    "a_",
    "a'b",
    "a\"b",
    "a\\b",
    "a\u{1}b",
    "a\nb",
    "<one/1>",
    "$1",
    "a;--",
    "{}",
    "\u{202e}a",
    "\u{feff}a",
    "😀",
];

async fn names_of_any_characters_name_each_their_own(backend: Backend) {
    let store = backend.store().await;
    let mut keys = Vec::new();
    for name in NAMES {
        keys.push(ConversationKey::new(name, "-", "-", "-"));
        keys.push(ConversationKey::new("-", name, "-", "-"));
        keys.push(ConversationKey::new("-", "-", name, "-"));
        keys.push(ConversationKey::new("-", "-", "-", name));
    }
    // The same characters in other names.
    keys.push(ConversationKey::new("x", "y/z", "-", "-"));
    keys.push(ConversationKey::new("x/y", "z", "-", "-"));
    for (number, key) in keys.iter().enumerate() {
        let change = format!(r#"{{"n":{number}}}"#);
        assert_eq!(append_all(&store, key, 0, vec![event(&number.to_string(), &change)]).await.unwrap(), 1, "{key:?}");
    }
    for (number, key) in keys.iter().enumerate() {
        let found = store.conversation(key, annex_conversation::Window::ALL).await.unwrap();
        assert_eq!(ids(&found.history), [number.to_string()], "{key:?}");
        assert_eq!(found.state.merged().to_json_string(), format!(r#"{{"n":{number}}}"#), "{key:?}");
    }
    for name in NAMES {
        let query = |tenant: &str, app: &str, user: &str| {
            let (tenant, app, user) = (tenant.to_owned(), app.to_owned(), Some(user.to_owned()));
            ConversationQuery { tenant, app, user, after: None, limit: 100 }
        };
        for query in [query(name, "-", "-"), query("-", name, "-"), query("-", "-", name)] {
            assert_eq!(store.list(&query).await.unwrap().len(), 1, "{query:?}");
        }
        assert_eq!(store.holdings(name).await.unwrap().conversations, 1, "{name}");
    }
    assert!(store.delete(&ConversationKey::new("-", "-", "-", "ä")).await.unwrap());
    let left = latest(&store, &ConversationKey::new("-", "-", "-", "a\u{308}"), annex_conversation::Window::ALL).await;
    assert_eq!(left.len(), 1);
}

/// Text that does not compress, because a database compresses the entries of its indexes.
fn long(bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(TaskId::generate().as_str());
    }
    text.truncate(bytes);
    text
}

async fn the_longest_names_and_keys_are_kept(backend: Backend) {
    use annex_conversation::MAX_KEY_BYTES as MOST;

    let store = backend.store().await;
    let key = ConversationKey::new(long(MOST), long(MOST), long(MOST), long(MOST).as_str());
    // A key is stored as JSON, with its quotes.
    let names = [long(MOST - 2), format!("user:{}", long(MOST - 7)), format!("app:{}", long(MOST - 6))];
    let delta: String = names.iter().map(|name| format!(r#","{name}":1"#)).collect();
    let file = long(MOST - 2);
    let artifacts = [(file.clone(), Vec::new().into())].into();
    let sent = annex_conversation::Event { artifacts, ..event("e", &format!("{{{}}}", &delta[1..])) };
    append_all(&store, &key, 0, vec![sent]).await.unwrap();
    let state = store.conversation(&key, annex_conversation::Window::NONE).await.unwrap().state.merged();
    assert!(names.iter().all(|name| state.get(name).is_some()));
    assert_eq!(store.artifact(&key, &file).await.unwrap().unwrap().version, 1);
    assert!(store.delete_key(&key, &names[1]).await.unwrap());
}
