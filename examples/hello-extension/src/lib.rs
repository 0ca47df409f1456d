use annex_sdk::{Descriptor, Event, EventKinds, Extension, NoParameters, Patch, Response};

struct Hello;

impl Extension for Hello {
    type Parameters = NoParameters;

    fn descriptor(_: &NoParameters) -> Result<Descriptor, String> {
        let hello = Descriptor::new("https://annex.example/hello/v1", "Says hello on each artifact.");
        Ok(Descriptor { metadata_keys: vec!["hello".into()], events: EventKinds::ARTIFACT, ..hello })
    }
}

impl Response for Hello {
    fn respond(_: &NoParameters, _: Event) -> Result<Option<Patch>, String> {
        Ok(Some(Patch::entry("hello", r#""Hello, world!""#)))
    }
}

annex_sdk::export!(Hello: response);
