//! Components that are uploaded for tenants.

use annex_tenants::{PulledComponent, TenantStoreError, TenantStores, Upload, UploadBounds};

use crate::fixture::Restart;

on_every_store! {
    a_component_is_kept_once_and_found_by_its_digest,
    what_is_beyond_the_bounds_is_refused_with_what_is_there,
    of_uploads_at_the_same_time_no_more_are_kept_than_may_be,
    a_pulled_component_stays_for_as_long_as_the_text_of_a_tenant_names_it,
    pulled_and_uploaded_components_share_the_bounds,
}

across_a_restart! {
    components_outlive_the_process,
    pulled_components_outlive_the_process,
}

const WIDE: UploadBounds = UploadBounds { count: 10, bytes: 1_000 };

async fn a_component_is_kept_once_and_found_by_its_digest(stores: TenantStores) {
    let components = &stores.components;
    assert_eq!((components.find("sha256:a").await.unwrap(), components.has("sha256:a").await.unwrap()), (None, false));
    assert_eq!(components.put("sha256:a", &[0, 255, 7], WIDE).await.unwrap(), Upload::Stored);
    assert_eq!(components.put("sha256:a", &[0, 255, 7], WIDE).await.unwrap(), Upload::Known);
    assert_eq!(components.find("sha256:a").await.unwrap(), Some(vec![0, 255, 7]));
    assert!(components.has("sha256:a").await.unwrap());
    components.put("sha256:0", &[1], WIDE).await.unwrap();
    let listed = components.list().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|component| (component.digest.as_str(), component.size)).collect();
    assert_eq!(listed, [("sha256:0", 1), ("sha256:a", 3)]);
    assert!(components.remove("sha256:a").await.unwrap());
    assert!(!components.remove("sha256:a").await.unwrap());
    assert_eq!(components.find("sha256:a").await.unwrap(), None);
    for digest in ["\0", ""] {
        assert_eq!(components.find(digest).await.unwrap(), None);
        let refused = components.put(digest, &[1], WIDE).await.unwrap_err();
        assert!(matches!(refused, TenantStoreError::InvalidKey { .. }), "{refused}");
    }
}

async fn what_is_beyond_the_bounds_is_refused_with_what_is_there(stores: TenantStores) {
    let components = &stores.components;
    let bounds = UploadBounds { count: 2, bytes: 10 };
    assert_eq!(components.put("a", &[0; 6], bounds).await.unwrap(), Upload::Stored);
    let there = UploadBounds { count: 1, bytes: 6 };
    assert_eq!(components.put("b", &[0; 5], bounds).await.unwrap(), Upload::Full(there));
    assert_eq!(components.put("b", &[0; 4], bounds).await.unwrap(), Upload::Stored);
    let there = UploadBounds { count: 2, bytes: 10 };
    assert_eq!(components.put("c", &[], bounds).await.unwrap(), Upload::Full(there));
    assert_eq!(components.put("a", &[0; 6], bounds).await.unwrap(), Upload::Known, "it needs no room");
    assert!(components.remove("a").await.unwrap());
    assert_eq!(components.put("c", &[0; 6], bounds).await.unwrap(), Upload::Stored);
}

async fn of_uploads_at_the_same_time_no_more_are_kept_than_may_be(stores: TenantStores) {
    let uploads = (0..8).map(|number| {
        let stores = stores.clone();
        let bounds = UploadBounds { count: 3, bytes: 1_000 };
        tokio::spawn(async move { stores.components.put(&format!("c-{number}"), &[number], bounds).await.unwrap() })
    });
    let mut stored = 0;
    for upload in uploads.collect::<Vec<_>>() {
        stored += usize::from(upload.await.unwrap() == Upload::Stored);
    }
    assert_eq!((stored, stores.components.list().await.unwrap().len()), (3, 3));
}

async fn components_outlive_the_process(restart: &Restart) {
    let stores = restart.open().await;
    stores.components.put("a", &[1, 2], WIDE).await.unwrap();
    let stores = restart.after(stores).await;
    assert_eq!(stores.components.find("a").await.unwrap(), Some(vec![1, 2]));
}

fn pulled(signatures: &[&[u8]]) -> PulledComponent {
    let signatures = signatures.iter().map(|signature| signature.to_vec()).collect();
    PulledComponent { manifest: vec![1, 0], component: vec![0, 255, 7], signatures }
}

async fn a_pulled_component_stays_for_as_long_as_the_text_of_a_tenant_names_it(stores: TenantStores) {
    let components = &stores.components;
    assert!(!components.claim_pulled("one", "sha256:a").await.unwrap());
    assert_eq!(components.find_pulled("sha256:a").await.unwrap(), None);
    let first = pulled(&[b"s"]);
    assert_eq!(components.put_pulled("one", "sha256:a", &first, WIDE).await.unwrap(), Upload::Stored);
    assert_eq!(components.find_pulled("sha256:a").await.unwrap(), Some(first));
    let again = pulled(&[b"t", b"u"]);
    assert_eq!(components.put_pulled("one", "sha256:a", &again, WIDE).await.unwrap(), Upload::Known);
    assert_eq!(components.find_pulled("sha256:a").await.unwrap(), Some(again.clone()), "newer signatures count");
    assert!(components.claim_pulled("two", "sha256:a").await.unwrap());

    components.release_pulled("one", "component = \"oci://a/b@sha256:a\"").await.unwrap();
    components.release_pulled("two", "").await.unwrap();
    components.release_pulled("nobody", "").await.unwrap();
    assert_eq!(components.find_pulled("sha256:a").await.unwrap(), Some(again), "the text of `one` names it");
    components.release_pulled("one", "sha256:b").await.unwrap();
    assert_eq!(components.find_pulled("sha256:a").await.unwrap(), None);
    assert!(!components.claim_pulled("one", "sha256:a").await.unwrap());
}

async fn pulled_and_uploaded_components_share_the_bounds(stores: TenantStores) {
    let components = &stores.components;
    let bounds = UploadBounds { count: 2, bytes: 10 };
    assert_eq!(components.put("a", &[0; 4], bounds).await.unwrap(), Upload::Stored);
    let there = UploadBounds { count: 1, bytes: 4 };
    let large = pulled(&[b"ab"]);
    assert_eq!(components.put_pulled("one", "b", &large, bounds).await.unwrap(), Upload::Full(there));
    assert_eq!(components.find_pulled("b").await.unwrap(), None);
    assert_eq!(components.put_pulled("one", "b", &pulled(&[b"a"]), bounds).await.unwrap(), Upload::Stored);
    let there = UploadBounds { count: 2, bytes: 10 };
    assert_eq!(components.put("c", &[], bounds).await.unwrap(), Upload::Full(there));
    for (tenant, digest) in [("", "b"), ("one", "\0")] {
        let refused = components.put_pulled(tenant, digest, &large, bounds).await.unwrap_err();
        assert!(matches!(refused, TenantStoreError::InvalidKey { .. }), "{refused}");
    }
}

async fn pulled_components_outlive_the_process(restart: &Restart) {
    let stores = restart.open().await;
    stores.components.put_pulled("one", "a", &pulled(&[b"s"]), WIDE).await.unwrap();
    let stores = restart.after(stores).await;
    assert_eq!(stores.components.find_pulled("a").await.unwrap(), Some(pulled(&[b"s"])));
    stores.components.release_pulled("one", "").await.unwrap();
    assert_eq!(stores.components.find_pulled("a").await.unwrap(), None);
}
