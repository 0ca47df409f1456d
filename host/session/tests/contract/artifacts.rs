//! Artifacts, which are kept with a session under a name.

use annex_protocol::Part;
use annex_session::{Event, Limits, StoredArtifact};

use crate::support::{Backend, Store, add, create, event, events, key, open, refusal};

on_every_store!(
    the_latest_version_of_an_artifact_is_read_by_its_name,
    the_oldest_artifacts_make_room_for_new_ones,
    an_artifact_that_has_no_room_is_refused_with_its_event,
    artifacts_go_with_their_session,
);

fn with(id: &str, artifacts: &[(&str, &str)]) -> Event {
    let parts = |text: &str| vec![Part::text(text)].into();
    let artifacts = artifacts.iter().map(|(name, text)| ((*name).to_owned(), parts(text))).collect();
    Event { artifacts, ..event(id, "{}") }
}

async fn text_of(service: &Store, name: &str) -> Option<(u64, Vec<Part>)> {
    let found = service.artifact(&key("s"), name).await.unwrap();
    found.map(|StoredArtifact { version, parts }| (version, parts.into()))
}

async fn the_latest_version_of_an_artifact_is_read_by_its_name(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(with("one", &[("a\0b", "first"), ("other", "second")])).await.unwrap();
    session.append(with("two", &[("a\0b", "third")])).await.unwrap();
    assert_eq!(session.artifact("a\0b").await.unwrap(), Some(vec![Part::text("third")].into()));
    assert_eq!(session.artifact("A\0b").await.unwrap(), None);
    assert_eq!(text_of(&service, "a\0b").await, Some((2, vec![Part::text("third")])));
    assert_eq!(text_of(&service, "other").await, Some((1, vec![Part::text("second")])));
    assert!(events(&service, "s").await.iter().all(|event| event.artifacts.is_empty()), "they are kept apart");
    let again = add(&service, "s", 1, with("one", &[("a\0b", "first")])).await.unwrap();
    assert!(again.repeated);
    assert_eq!(text_of(&service, "a\0b").await, Some((2, vec![Part::text("third")])));
}

async fn the_oldest_artifacts_make_room_for_new_ones(backend: Backend) {
    let service = backend.within(Limits { artifacts: 3, artifact_bytes: 4_000, ..Limits::default() }).await;
    let session = open(&service, "s").await;
    for name in ["a", "b", "c", "a", "d"] {
        session.append(with(&format!("{name} {}", events(&service, "s").await.len()), &[(name, "x")])).await.unwrap();
    }
    assert_eq!(text_of(&service, "b").await, None, "it was not written for longest");
    assert_eq!(text_of(&service, "a").await.unwrap().0, 2);
    session.append(with("large", &[("e", &"x".repeat(3_500))])).await.unwrap();
    assert_eq!(text_of(&service, "c").await, None);
    session.append(with("larger", &[("f", &"x".repeat(3_700))])).await.unwrap();
    for gone in ["a", "d", "e"] {
        assert_eq!(text_of(&service, gone).await, None, "{gone}");
    }
    assert!(text_of(&service, "f").await.is_some());
}

async fn an_artifact_that_has_no_room_is_refused_with_its_event(backend: Backend) {
    let service = backend.within(Limits { artifact_bytes: 1_000, ..Limits::default() }).await;
    create(&service, "s", "{}").await;
    let refused = refusal(add(&service, "s", 1, with("e", &[("a", "x"), ("b", &"x".repeat(1_000))])).await);
    assert!(refused.starts_with(r#"artifact "b" takes"#) && refused.ends_with("the limit is 1000"), "{refused}");
    assert_eq!(text_of(&service, "a").await, None);
    assert!(events(&service, "s").await.is_empty());
}

async fn artifacts_go_with_their_session(backend: Backend) {
    let service = backend.service().await;
    add(&service, "s", 0, with("e", &[("a", "x")])).await.unwrap();
    add(&service, "other/s", 0, with("e", &[("b", "x")])).await.unwrap();
    assert_eq!(text_of(&service, "b").await, None, "it is another user's");
    service.delete(&key("s")).await.unwrap();
    create(&service, "s", "{}").await;
    assert_eq!(text_of(&service, "a").await, None);
}
