//! `annex doctor`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};

use crate::check::run_on;
use crate::support::{ConfigFile, annex, run, specialist};

#[test]
fn a_doctor_looks_at_everything_and_says_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef")?;
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644))?;
    let more = format!("[tasks]\ndata_dir = \"data\"\n[admin]\ntoken_file = {token:?}\n\n[agent]");
    let config = ConfigFile::new(&specialist().replacen("[agent]", &more, 1))?;
    let seen = run_on("doctor", &config)?;
    assert_eq!(seen.code, Some(0), "{}{}", seen.out, seen.err);
    for part in [
        "ok       config       no errors",
        "ok       folder       tasks.data_dir: ",
        "ok       cache        ",
        "warning  keys         ",
        "chmod o-r",
        "ok       clock        ",
        "limits       ",
        "confinement  ",
        "ok       engine       ",
    ] {
        assert!(seen.out.contains(part), "{part}: {}", seen.out);
    }
    assert!(!seen.out.contains("may be reached by extensions"), "{}", seen.out);
    let of_engine = |out: &str| out.lines().filter(|line| line.starts_with("ok       engine ")).count();
    assert_eq!(of_engine(&seen.out), 1, "{}", seen.out);
    let listed = run(["doctor".as_ref(), config.path.as_os_str(), "--advisories".as_ref()])?;
    let number = listed.out.lines().filter(|line| line.contains("is not reached by extensions: ")).count();
    assert_eq!(of_engine(&listed.out), number + 1, "{}", listed.out);
    let summary = format!("known faults that no extension reaches: {number}");
    assert!(number == 0 || seen.out.contains(&summary), "{number}: {}", seen.out);
    assert!(!config.path.with_file_name("data").exists(), "nothing is made");
    Ok(())
}

#[test]
fn a_doctor_looks_at_the_files_of_all_tokens_and_of_the_keys_of_tenants() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let of_tenant = folder.path().join("tenant");
    fs::create_dir(&of_tenant)?;
    let files = ["admin", "metrics", "bot", "tenant/key"].map(|name| folder.path().join(name));
    for file in &files {
        fs::write(file, format!("a token of {}", file.display()))?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
    }
    let [admin, metrics, bot, _] = &files;
    let tenant = of_tenant.join("tenant.toml");
    let text = "[card]\nname = \"n\"\ndescription = \"d\"\n[card.signing]\nkid = \"k\"\nkey_file = \"key\"\n\
                [agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";
    fs::write(&tenant, text)?;
    let more = format!(
        "[admin]\ntoken_file = {admin:?}\nmetrics_token_file = {metrics:?}\n[[admin.token]]\nname = \"bot\"\n\
         token_file = {bot:?}\n[[tenant]]\nname = \"t\"\nconfig = {tenant:?}\n\n[agent]"
    );
    let config = ConfigFile::new(&specialist().replacen("[agent]", &more, 1))?;
    let seen = run_on("doctor", &config)?;
    for file in &files {
        let shown = file.display().to_string();
        let is_told = seen.out.lines().any(|line| line.starts_with("warning  keys ") && line.contains(&shown));
        assert!(is_told, "{shown}: {}", seen.out);
    }
    Ok(())
}

#[test]
fn a_doctor_tries_the_token_endpoint_of_an_upstream_agent() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let secret = folder.path().join("secret");
    fs::write(&secret, "the secret of the client")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let text = |url: &str| {
        format!(
            "[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:1\"\nstart_seconds = 1\n[agent.oauth]\n\
             token_url = \"{url}\"\nclient_id = \"annex\"\nclient_secret_file = {secret:?}\n"
        )
    };
    let refuses =
        "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 26\r\n\r\n{\"error\":\"invalid_client\"}";
    let grants = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 45\r\n\r\n\
                  {\"access_token\":\"t\",\"token_type\":\"Bearer\"}   ";
    for (answer, expected) in [
        (refuses, "refused with the error \"invalid_client\"; check [agent.oauth]"),
        (grants, "ok       agent        [agent]: the token endpoint gives a token for client credentials"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let config = ConfigFile::new(&text(&format!("http://{}/token", listener.local_addr()?)))?;
        let answered = std::thread::spawn(move || -> Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut request = Vec::new();
            while !String::from_utf8_lossy(&request).contains("grant_type=client_credentials") {
                let mut piece = [0; 4096];
                let length = stream.read(&mut piece)?;
                ensure!(length > 0, "the request broke off");
                request.extend_from_slice(&piece[..length]);
            }
            stream.write_all(answer.as_bytes())?;
            Ok(())
        });
        let seen = run_on("doctor", &config)?;
        answered.join().map_err(|_| anyhow::anyhow!("the endpoint panicked"))??;
        assert!(seen.out.contains(expected), "{}", seen.out);
        assert!(!seen.out.contains("the secret of the client"), "{}", seen.out);
    }
    Ok(())
}

#[test]
fn a_doctor_names_what_would_keep_a_server_from_serving() -> Result<()> {
    let upstream = "[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:1\"\nstart_seconds = 1\n";
    let config = ConfigFile::new(&format!("{upstream}[tasks]\ndata_dir = \"data\"\npostgres_env = 5\n"))?;
    let data = config.path.with_file_name("data");
    fs::write(&data, "a file")?;
    let seen = run_on("doctor", &config)?;
    assert_eq!(seen.code, Some(1));
    assert!(
        seen.out.contains("error    config       ") && seen.out.contains("annex.toml:8:16: tasks.postgres_env"),
        "{}",
        seen.out
    );
    assert!(seen.err.contains("1 error"), "{}", seen.err);

    fs::write(&config.path, format!("{upstream}[tasks]\ndata_dir = \"data\"\n"))?;
    let seen = run_on("doctor", &config)?;
    assert_eq!(seen.code, Some(1));
    assert!(
        seen.out.contains("error    folder       tasks.data_dir: ") && seen.out.contains("is not a folder"),
        "{}",
        seen.out
    );
    assert!(seen.out.contains("error    agent        [agent]: ") && seen.out.contains("127.0.0.1:1"), "{}", seen.out);
    // Each part of the reason is said once.
    let absent = "[agent]: the upstream agent at http://127.0.0.1:1 cannot be used: cannot connect to \
                  http://127.0.0.1:1/.well-known/agent-card.json; check that the agent is running: Connection refused (os error 111)\n";
    assert!(seen.out.contains(absent), "{}", seen.out);
    fs::rename(&data, data.with_extension("away"))?;
    let served = run_on("serve", &config)?;
    assert!(served.err.ends_with(&format!("error: {absent}")), "{}", served.err);
    fs::rename(data.with_extension("away"), &data)?;

    fs::remove_file(&data)?;
    fs::create_dir(&data)?;
    fs::write(data.join("conversations.sqlite"), "no database at all")?;
    let seen = run_on("doctor", &config)?;
    assert!(seen.out.contains("conversations.sqlite is not an SQLite database"), "{}", seen.out);
    Ok(())
}

#[test]
fn a_database_that_does_not_answer_is_an_error_of_the_doctor_and_none_of_the_check() -> Result<()> {
    let config = ConfigFile::new(&format!("{}\n[tasks]\npostgres_env = \"ANNEX_TEST_TASKS\"\n", specialist()))?;
    let with_url = |command: &str| {
        let mut command = annex([command.as_ref(), config.path.as_os_str()]);
        command.env("ANNEX_TEST_TASKS", "postgres://annex:hidden@127.0.0.1:1/annex").output()
    };
    assert_eq!(with_url("check")?.status.code(), Some(0));
    let seen = with_url("doctor")?;
    let text = String::from_utf8(seen.stdout)?;
    assert_eq!(seen.status.code(), Some(1));
    assert!(text.contains("error    database     tasks.postgres_env: "), "{text}");
    assert!(!text.contains("hidden"), "{text}");
    let unset = run_on("check", &config)?;
    assert!(
        unset.err.contains("tasks.postgres_env: the environment variable ANNEX_TEST_TASKS is not set"),
        "{}",
        unset.err
    );
    Ok(())
}

#[test]
fn a_doctor_tries_the_addresses_and_names_one_that_is_in_use() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?;
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"ANNEX_TEST_DOCTOR\"\n\n[agent]";
    let text = specialist().replace("127.0.0.1:0", &address.to_string()).replacen("[agent]", admin, 1);
    let config = ConfigFile::new(&text)?;
    let doctor = || {
        let mut command = annex(["doctor".as_ref(), config.path.as_os_str()]);
        let output = command.env("ANNEX_TEST_DOCTOR", "0123456789abcdef").output()?;
        anyhow::Ok((output.status.code(), String::from_utf8(output.stdout)?))
    };
    let (code, out) = doctor()?;
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains(&format!("warning  port         server.listen: {address} is in use")), "{out}");
    assert!(out.contains("ok       port         admin.listen: 127.0.0.1:0 is free"), "{out}");
    drop(taken);
    // An address of no machine (RFC 5737).
    fs::write(&config.path, text.replace(&address.to_string(), "192.0.2.1:9999\"\nallow_anonymous = true #"))?;
    let (code, out) = doctor()?;
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("error    port         server.listen: cannot listen on 192.0.2.1:9999: "), "{out}");
    Ok(())
}
