//! Artifacts, which are kept with a session under a name.

use annex_conversation::{Event, Limits, StoredArtifact};
use annex_protocol::Part;

use crate::support::{Backend, Says, Store, add, create, event, events, key, open, refusal};

on_every_store!(
    the_latest_version_of_an_artifact_is_read_by_its_name,
    the_oldest_artifacts_make_room_for_new_ones,
    an_artifact_that_has_no_room_is_refused_with_its_event,
    artifacts_go_with_their_conversation,
);

fn with(id: &str, artifacts: &[(&str, &str)]) -> Event {
    let parts = |text: &str| vec![Part::text(text)].into();
    let artifacts = artifacts.iter().map(|(name, text)| ((*name).to_owned(), parts(text))).collect();
    Event { artifacts, ..event(id, "{}") }
}

async fn text_of(store: &Store, name: &str) -> Option<(u64, Vec<Part>)> {
    let found = store.artifact(&key("s"), name).await.unwrap();
    found.map(|StoredArtifact { version, parts }| (version, parts.into()))
}

async fn the_latest_version_of_an_artifact_is_read_by_its_name(backend: Backend) {
    let store = backend.store().await;
    let session = open(&store, "s").await;
    session.say(with("one", &[("a\0b", "first"), ("other", "second")])).await.unwrap();
    session.say(with("two", &[("a\0b", "third")])).await.unwrap();
    assert_eq!(session.artifact("a\0b").await.unwrap(), Some(vec![Part::text("third")].into()));
    assert_eq!(session.artifact("A\0b").await.unwrap(), None);
    assert_eq!(text_of(&store, "a\0b").await, Some((2, vec![Part::text("third")])));
    assert_eq!(text_of(&store, "other").await, Some((1, vec![Part::text("second")])));
    assert!(events(&store, "s").await.iter().all(|event| event.artifacts.is_empty()), "they are kept apart");
}

async fn the_oldest_artifacts_make_room_for_new_ones(backend: Backend) {
    let store = backend.within(Limits { artifacts: 3, artifact_bytes: 4_000, ..Limits::default() }).await;
    let session = open(&store, "s").await;
    for name in ["a", "b", "c", "a", "d"] {
        session.say(with(&format!("{name} {}", events(&store, "s").await.len()), &[(name, "x")])).await.unwrap();
    }
    assert_eq!(text_of(&store, "b").await, None, "it was not written for longest");
    assert_eq!(text_of(&store, "a").await.unwrap().0, 2);
    session.say(with("large", &[("e", &"x".repeat(3_500))])).await.unwrap();
    assert_eq!(text_of(&store, "c").await, None);
    session.say(with("larger", &[("f", &"x".repeat(3_700))])).await.unwrap();
    for gone in ["a", "d", "e"] {
        assert_eq!(text_of(&store, gone).await, None, "{gone}");
    }
    assert!(text_of(&store, "f").await.is_some());
}

async fn an_artifact_that_has_no_room_is_refused_with_its_event(backend: Backend) {
    let store = backend.within(Limits { artifact_bytes: 1_000, ..Limits::default() }).await;
    create(&store, "s", "{}").await;
    let refused = refusal(add(&store, "s", 1, with("e", &[("a", "x"), ("b", &"x".repeat(1_000))])).await);
    assert!(refused.starts_with(r#"artifact "b" takes"#) && refused.ends_with("the limit is 1000"), "{refused}");
    assert_eq!(text_of(&store, "a").await, None);
    assert!(events(&store, "s").await.is_empty());
}

async fn artifacts_go_with_their_conversation(backend: Backend) {
    let store = backend.store().await;
    add(&store, "s", 0, with("e", &[("a", "x")])).await.unwrap();
    add(&store, "other/s", 0, with("e", &[("b", "x")])).await.unwrap();
    assert_eq!(text_of(&store, "b").await, None, "it is another user's");
    store.delete(&key("s")).await.unwrap();
    create(&store, "s", "{}").await;
    assert_eq!(text_of(&store, "a").await, None);
}
