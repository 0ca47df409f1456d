//! Components that are uploaded for tenants.

use annex_tenants::{TenantStoreError, TenantStores, Upload, UploadBounds};

use crate::fixture::Restart;

on_every_store! {
    a_component_is_kept_once_and_found_by_its_digest,
    what_is_beyond_the_bounds_is_refused_with_what_is_there,
    of_uploads_at_the_same_time_no_more_are_kept_than_may_be,
}

across_a_restart! {
    components_outlive_the_process,
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
