//! The bounds and the order of the ring.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use annex_telemetry::{Outcome, Request, StageTimes};

use super::record::End;
use super::{MAX_LISTENERS, MAX_WAITING, News, RecentRequests, RequestFilter, RequestRecord, VisibleRequests};

const ALL: (Option<u64>, usize) = (None, usize::MAX);

fn record(fill: impl FnOnce(&Request)) -> RequestRecord {
    let request = Request::begin_with_timeline(false, None);
    fill(&request);
    let end = End {
        operation: "SendMessage",
        outcome: Outcome::Ok,
        reason: None,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        status: Some(200),
        bytes_out: 1,
        took: Duration::from_millis(1),
        stages: StageTimes::default(),
    };
    RequestRecord::new(&request, &end)
}

fn of_tenant(name: &str) -> RequestRecord {
    record(|request| drop(request.tenant.set(name.into())))
}

fn numbers(listed: &[Arc<RequestRecord>]) -> Vec<u64> {
    listed.iter().map(|record| record.number).collect()
}

#[test]
fn the_ring_keeps_the_last_requests_and_lists_the_newest_first() {
    let ring = RecentRequests::new(3);
    let everything = RequestFilter::default();
    assert!(ring.list(&everything, &VisibleRequests::All, ALL).is_empty());
    for _ in 0..8 {
        ring.add(of_tenant("acme"));
    }
    assert_eq!(numbers(&ring.list(&everything, &VisibleRequests::All, ALL)), [8, 7, 6]);
    assert_eq!(numbers(&ring.list(&everything, &VisibleRequests::All, (Some(8), 1))), [7]);
    assert_eq!(numbers(&ring.list(&everything, &VisibleRequests::All, (Some(u64::MAX), 1))), [8]);
    assert!(ring.find(5, &VisibleRequests::All).is_none(), "request 5 was replaced by request 8");
    assert!(ring.find(9, &VisibleRequests::All).is_none() && ring.find(0, &VisibleRequests::All).is_none());
    assert_eq!(ring.find(6, &VisibleRequests::All).expect("a request").number, 6);
}

#[test]
fn a_ring_of_no_places_keeps_nothing() {
    let ring = RecentRequests::new(0);
    ring.add(of_tenant("acme"));
    assert!(!ring.is_on() && ring.find(1, &VisibleRequests::All).is_none());
    assert!(ring.list(&RequestFilter::default(), &VisibleRequests::All, ALL).is_empty());
}

#[test]
fn a_reader_of_one_tenant_sees_only_the_requests_that_name_it() {
    let ring = RecentRequests::new(10);
    let long = "a".repeat(300);
    for name in ["acme", "other", &long] {
        ring.add(of_tenant(name));
    }
    ring.add(record(|_| {}));
    for (tenant, expected) in [("acme", vec![1]), ("other", vec![2]), ("", vec![]), (&long[..200], vec![])] {
        let visible = VisibleRequests::Tenant(tenant.into());
        assert_eq!(numbers(&ring.list(&RequestFilter::default(), &visible, ALL)), expected, "{tenant}");
    }
    assert!(ring.find(2, &VisibleRequests::Tenant("acme".into())).is_none());
}

#[test]
fn requests_are_filtered_by_operation_outcome_extension_and_context() {
    let ring = RecentRequests::new(10);
    ring.add(record(|request| {
        request.is_about(Some("c-1".into()), None);
        let _ = request.extensions.set("uri:x, uri:y".into());
    }));
    ring.add(record(|request| request.blame("uri:z")));
    let text = |text: &str| Some(text.to_owned());
    let none = RequestFilter::default;
    let cases = [
        (none(), vec![2, 1]),
        (RequestFilter { operation: text("SendMessage"), ..none() }, vec![2, 1]),
        (RequestFilter { operation: text("GetTask"), ..none() }, vec![]),
        (RequestFilter { outcome: Some(Outcome::Failed), ..none() }, vec![]),
        (RequestFilter { extension: text("uri:y"), ..none() }, vec![1]),
        (RequestFilter { extension: text("uri:z"), ..none() }, vec![2]),
        (RequestFilter { extension: text("uri"), ..none() }, vec![]),
        (RequestFilter { context: text("c-1"), ..none() }, vec![1]),
    ];
    for (filter, expected) in cases {
        assert_eq!(numbers(&ring.list(&filter, &VisibleRequests::All, ALL)), expected, "{filter:?}");
    }
}

/// The worst requests of a full ring of the default size need less than 8 MiB.
#[test]
fn huge_texts_do_not_make_the_ring_large() {
    let huge: Arc<str> = "\u{202e}<script>".repeat(100_000).into();
    let worst = record(|request| {
        for text in [&request.tenant, &request.caller, &request.method, &request.context, &request.task] {
            text.set(Arc::clone(&huge)).expect("an empty place");
        }
        request.extensions.set((&*huge).into()).expect("an empty place");
        request.blame(&*huge);
        request.error_id.set((&*huge).into()).expect("an empty place");
    });
    let texts = [&worst.tenant, &worst.caller, &worst.method, &worst.context, &worst.task];
    assert!(texts.into_iter().flatten().all(|text| text.len() <= 200 && text.ends_with('…')));
    let shared: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
    let owned = [&worst.extensions, &worst.blamed, &worst.error_id];
    let owned: usize = owned.into_iter().flatten().map(|text| text.len()).sum();
    // 64 pieces of work of 56 bytes, 1,600 bytes of names, 600 bytes of a cause, and the vectors around them.
    let timeline = 64 * 56 + 1_600 + 600 + 16 * 16 + 200;
    let whole = size_of::<RequestRecord>() + shared + owned + timeline;
    assert!(whole * 1_000 <= 8 << 20, "{whole}");
}

#[tokio::test]
async fn a_slow_listener_misses_requests_and_is_told_how_many() {
    let ring = RecentRequests::new(4);
    let mut listener = ring.listen().expect("a place");
    for _ in 0..MAX_WAITING + 44 {
        ring.add(of_tenant("acme"));
    }
    let Some(News::Missed(missed)) = listener.next().await else { panic!("the listener has missed nothing") };
    assert_eq!(missed, 44);
    let Some(News::Request(record)) = listener.next().await else { panic!("no request") };
    assert_eq!(record.number, 45);
}

#[test]
fn a_place_for_a_listener_is_free_again_when_the_listener_has_gone() {
    let ring = RecentRequests::new(4);
    let mut listeners: Vec<_> = (0..MAX_LISTENERS).map_while(|_| ring.listen()).collect();
    assert_eq!(listeners.len(), MAX_LISTENERS);
    assert!(ring.listen().is_none());
    listeners.pop();
    assert!(ring.listen().is_some());
}
