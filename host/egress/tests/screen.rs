//! URLs that may be called and URLs that may not.

#![cfg(test)]

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use annex_egress::{AllowedDestination, Resolver, Screen, ScreenConfig, UrlRefusal};
use async_trait::async_trait;

struct Names;

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let address = match host {
            "public.example" | "xn--bcher-kva.example" => "93.184.215.14",
            "v6.example" => "2606:4700::1111",
            "mapped.example" => "::ffff:127.0.0.1",
            "hooks.internal" | "sub.hooks.internal" => "10.1.2.3",
            "metadata.google.internal" => "169.254.169.254",
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(vec![address.parse().unwrap()])
    }
}

fn screen_allowing(allow: &[&str], names: Arc<dyn Resolver>) -> Screen {
    let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
    Screen::with_resolver(ScreenConfig { allow, https_only: false }, names)
}

fn kind(result: &Result<(), UrlRefusal>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(UrlRefusal::TooLong { .. }) => "too long",
        Err(UrlRefusal::Malformed(_)) => "malformed",
        Err(UrlRefusal::Scheme) => "scheme",
        Err(UrlRefusal::NotHttps) => "not https",
        Err(UrlRefusal::UserInfo) => "user info",
        Err(UrlRefusal::NoHost) => "no host",
        Err(UrlRefusal::Port { .. }) => "port",
        Err(UrlRefusal::Address { .. }) => "address",
        Err(UrlRefusal::UnknownName { .. }) => "unknown name",
        Err(UrlRefusal::PrivateName { .. }) => "private name",
    }
}

async fn check(screen: &Screen, table: &[(&str, &str)]) {
    for (url, expected) in table {
        assert_eq!(kind(&screen.check(url).await), *expected, "{url}");
    }
}

#[tokio::test]
async fn urls_are_screened_by_their_form() {
    let long = format!("https://public.example/{}", "x".repeat(2048));
    let long_label = format!("https://{}.example/", "x".repeat(64));
    let long_name = format!("https://{}example/", "label.".repeat(50));
    check(
        &screen_allowing(&[], Arc::new(Names)),
        &[
            // Accepted URLs.
            ("https://public.example/hook?a=b#c", "ok"),
            ("http://public.example/hook", "ok"),
            ("HTTPS://PUBLIC.EXAMPLE./", "ok"),
            ("https://public.example:8443/", "ok"),
            ("https://public.example:443/", "ok"),
            ("https://v6.example/", "ok"),
            ("https://b\u{fc}cher.example/", "ok"),
            ("https://8.8.8.8/", "ok"),
            ("https://[2606:4700::1111]:8443/", "ok"),
            ("https://[::ffff:8.8.8.8]/", "ok"),
            ("https://[64:ff9b::8.8.8.8]/", "ok"),
            // Malformed URLs.
            ("", "malformed"),
            ("/hook", "malformed"),
            ("public.example/hook", "malformed"),
            ("https://", "malformed"),
            ("https://public.example:99999/", "malformed"),
            ("https://public.example:0/", "port"),
            ("https://public.example:22/", "port"),
            ("https://public.example:25/", "port"),
            ("http://public.example:1023/", "port"),
            ("https://user@public.example/", "user info"),
            ("https://user:password@public.example/", "user info"),
            ("https://:password@public.example/", "user info"),
            ("https://public.example@127.0.0.1/", "user info"),
            ("ftp://public.example/", "scheme"),
            ("file:///etc/passwd", "scheme"),
            ("gopher://public.example/", "scheme"),
            ("unix:/var/run/docker.sock", "scheme"),
            ("javascript:alert(1)", "scheme"),
            ("data:text/plain,x", "scheme"),
            ("https://./", "no host"),
            ("https://public..example/", "no host"),
            ("https://public.example../", "no host"),
            (&long, "too long"),
            (&long_label, "no host"),
            (&long_name, "no host"),
        ],
    )
    .await;
}

#[tokio::test]
async fn names_are_screened_by_their_addresses() {
    check(
        &screen_allowing(&[], Arc::new(Names)),
        &[
            ("http://localhost/", "private name"),
            ("http://LocalHost.:8080/", "private name"),
            ("http://a.b.localhost/", "private name"),
            ("http://mapped.example/", "private name"),
            ("http://hooks.internal/", "private name"),
            ("http://metadata.google.internal/computeMetadata/v1/", "private name"),
            ("http://intranet/", "unknown name"),
        ],
    )
    .await;
}

#[tokio::test]
async fn ipv4_addresses_are_screened_in_every_notation() {
    check(
        &screen_allowing(&[], Arc::new(Names)),
        &[
            ("http://127.0.0.1/", "address"),
            ("http://127.0.0.1./", "address"),
            ("http://127.1/", "address"),
            ("http://127.255.255.254:8080/", "address"),
            ("http://2130706433/", "address"),
            ("http://0x7f000001/", "address"),
            ("http://0x7f.0.0.1/", "address"),
            ("http://0177.0.0.1/", "address"),
            ("http://017700000001/", "address"),
            ("http://%31%32%37.0.0.1/", "address"),
            ("http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/", "address"),
            ("http://\u{2460}\u{2461}\u{2466}.0.0.1/", "address"),
            ("http:\\\\127.0.0.1\\", "address"),
            ("http:127.0.0.1/", "address"),
            (" http://12\t7.0.0.1/ ", "address"),
            ("http://256.0.0.1/", "malformed"),
            ("http://0.0.0.0/", "address"),
            ("http://0/", "address"),
            ("http://0.1.2.3/", "address"),
            ("http://10.0.0.1/", "address"),
            ("http://100.64.0.1/", "address"),
            ("http://100.127.255.255/", "address"),
            ("http://100.128.0.1/", "ok"),
            ("http://169.254.1.1/", "address"),
            ("http://169.254.169.254/latest/meta-data/", "address"),
            ("http://2852039166/", "address"),
            ("http://168.63.129.16/", "address"),
            ("http://100.100.100.200/", "address"),
            ("http://172.15.0.1/", "ok"),
            ("http://172.16.0.1/", "address"),
            ("http://172.31.255.255/", "address"),
            ("http://172.32.0.1/", "ok"),
            ("http://192.0.0.192/", "address"),
            ("http://192.0.2.1/", "address"),
            ("http://192.168.1.1/", "address"),
            ("http://198.18.0.1/", "address"),
            ("http://198.19.255.255/", "address"),
            ("http://198.51.100.1/", "address"),
            ("http://203.0.113.1/", "address"),
            ("http://224.0.0.1/", "address"),
            ("http://239.255.255.255/", "address"),
            ("http://240.0.0.1/", "address"),
            ("http://255.255.255.255/", "address"),
        ],
    )
    .await;
}

#[tokio::test]
async fn ipv6_addresses_and_embedded_ipv4_addresses_are_screened() {
    check(
        &screen_allowing(&[], Arc::new(Names)),
        &[
            ("http://[::]/", "address"),
            ("http://[::1]/", "address"),
            ("http://[0:0:0:0:0:0:0:1]/", "address"),
            ("http://[::ffff:127.0.0.1]/", "address"),
            ("http://[::ffff:7f00:1]/", "address"),
            ("http://[::127.0.0.1]/", "address"),
            ("http://[::8.8.8.8]/", "address"),
            ("http://[64:ff9b::10.0.0.1]/", "address"),
            ("http://[64:ff9b::169.254.169.254]/", "address"),
            ("http://[64:ff9b:1::8.8.8.8]/", "address"),
            ("http://[2002:7f00:1::]/", "address"),
            ("http://[2001:0:5ef5:79fb::1]/", "address"),
            ("http://[2001:db8::1]/", "address"),
            ("http://[3fff::1]/", "address"),
            ("http://[fc00::1]/", "address"),
            ("http://[fd00:ec2::254]/", "address"),
            ("http://[fe80::1]/", "address"),
            ("http://[fe80::1%25eth0]/", "malformed"),
            ("http://[fec0::1]/", "address"),
            ("http://[ff02::1]/", "address"),
            ("http://[100::1]/", "address"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_operator_may_allow_hosts_addresses_and_ranges() {
    let allow = ["Hooks.Internal.", "127.0.0.1", "192.168.0.0/16", "fd12::/16", "0.0.0.0/0", "169.254.170.2"];
    check(
        &screen_allowing(&allow[..4], Arc::new(Names)),
        &[
            ("http://hooks.internal/", "ok"),
            ("http://HOOKS.internal./", "ok"),
            ("http://sub.hooks.internal/", "private name"),
            ("http://10.1.2.3/", "address"),
            ("http://127.0.0.1:8080/", "ok"),
            ("http://localhost:8080/", "ok"),
            ("http://mapped.example/", "ok"),
            ("http://[::ffff:127.0.0.1]/", "ok"),
            ("http://127.0.0.2/", "address"),
            ("http://[::1]/", "address"),
            ("http://192.168.255.1/", "ok"),
            ("http://[fd12::1]/", "ok"),
            ("http://[fd13::1]/", "address"),
            ("http://127.0.0.1:22/", "port"),
            ("ftp://127.0.0.1/", "scheme"),
        ],
    )
    .await;
    // Metadata services are allowed only by their exact address.
    check(
        &screen_allowing(&allow[4..], Arc::new(Names)),
        &[
            ("http://10.1.2.3/", "ok"),
            ("http://169.254.1.1/", "ok"),
            ("http://169.254.169.254/", "address"),
            ("http://metadata.google.internal/", "private name"),
            ("http://169.254.170.2/", "ok"),
        ],
    )
    .await;
    check(
        &screen_allowing(&["metadata.google.internal"], Arc::new(Names)),
        &[("http://metadata.google.internal/", "private name")],
    )
    .await;
}

#[tokio::test]
async fn plain_http_can_be_switched_off() {
    let config = ScreenConfig { https_only: true, allow: vec!["127.0.0.1".parse().unwrap()] };
    check(
        &Screen::with_resolver(config, Arc::new(Names)),
        &[
            ("https://public.example/", "ok"),
            ("https://127.0.0.1/", "ok"),
            ("http://public.example/", "not https"),
            ("http://127.0.0.1/", "not https"),
        ],
    )
    .await;
}

#[test]
fn allowed_destinations_are_parsed_strictly() {
    for text in ["127.0.0.1", "::1", "[::1]", "10.0.0.0/8", "10.1.2.3/8", "fd00::/8", "localhost", "a.example."] {
        assert!(text.parse::<AllowedDestination>().is_ok(), "{text}");
    }
    assert_eq!("[::ffff:10.0.0.1]".parse::<AllowedDestination>(), "10.0.0.1".parse());
    assert_eq!("10.1.2.3/8".parse::<AllowedDestination>(), "10.0.0.0/8".parse());
    for text in ["", ".", "*.example", "10.0.0.0/33", "http://a.example", "a.example:80", "a b", "[::1"] {
        assert!(text.parse::<AllowedDestination>().is_err(), "{text}");
    }
}
