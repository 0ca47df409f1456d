//! HTTP requests in tests: recorded, and answered by the test.

use std::rc::Rc;

use crate::http::{Error, Method, Request, Response, split};

/// A request that an extension sent in a test. It is public as `testing::SentRequest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// The method, in upper case.
    pub method: String,
    /// The URL as the extension wrote it.
    pub url: String,
    /// Header fields as the extension wrote them.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The body; empty if the extension set none.
    pub body: Vec<u8>,
}

pub(crate) type Answer = Rc<dyn Fn(&SentRequest) -> Result<Response, Error>>;

/// The test's answer to requests, and the recorded requests.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) sent: Vec<SentRequest>,
    pub(crate) answer: Option<Answer>,
}

/// Records a request and returns the test's response.
pub(crate) fn exchange(request: &Request) -> Result<Response, Error> {
    const FUNCTION: &str = "http::Request::send";
    // The host never sees a request without a proper URL.
    split(&request.url)?;
    let sent = SentRequest {
        method: name(&request.method).to_owned(),
        url: request.url.clone(),
        fields: request.fields.clone(),
        body: request.body.clone(),
    };
    let answer = super::ask(FUNCTION, |host| {
        host.http.sent.push(sent.clone());
        host.http.answer.clone()
    });
    let Some(answer) = answer else { super::unprepared(FUNCTION, "http") };
    answer(&sent)
}

fn name(method: &Method) -> &str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(name) => name,
    }
}
