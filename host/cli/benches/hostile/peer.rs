//! A peer with endless answers: an MCP server, and a model whose behaviour depends on the path.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::Result;
use serde_json::{Value, json};

/// The tenants whose agents call the model. Each has the name of its attack.
pub(crate) const MODELS: [&str; 3] = ["endless-error", "endless-event", "endless-calls"];
pub(crate) const TOOLS: &str = "endless-tools";

/// Starts the peer, which serves until the process ends. Returns its address.
pub(crate) fn start() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever has hung up has read enough.
            std::thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

/// The config of a tenant whose agent calls the peer.
pub(crate) fn tenant(name: &str, address: &str) -> String {
    let agent = "[card]\nname = \"n\"\ndescription = \"d\"\n[[card.skill]]\nid = \"s\"\nname = \"s\"\ndescription = \"s\"\n\
                 tags = [\"s\"]\n[agent]\nkind = \"template\"\nname = \"a\"\ninstruction = \"i\"\n";
    if name == TOOLS {
        let scripted = "[agent.model.scripted]\nfallback = \"f\"\n";
        return format!("{agent}{scripted}[[agent.mcp]]\nname = \"m\"\nurl = \"http://{address}/{name}\"\n");
    }
    format!("{agent}[agent.model.generative]\nmodel = \"m\"\nendpoint = \"http://{address}/{name}\"\n")
}

fn answer(mut stream: TcpStream) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut path = String::new();
    reader.read_line(&mut path)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        match line.strip_prefix("content-length:") {
            Some(value) => length = value.trim().parse()?,
            None if line.is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if path.contains(TOOLS) {
        return tools(&mut stream, &body);
    }
    let is_error = path.contains("endless-error");
    let status = if is_error { "500 Internal Server Error" } else { "200 OK" };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
    for number in 0_u64.. {
        let piece = if path.contains("endless-calls") {
            let function = json!({"name": "f", "arguments": "x".repeat(1_000)});
            let delta = json!({"tool_calls": [{"index": number, "function": function}]});
            format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}))
        } else {
            "x".repeat(64 << 10)
        };
        stream.write_all(piece.as_bytes())?;
    }
    Ok(())
}

/// Answers an MCP request. Each page of the list of tools refers to a next page.
fn tools(stream: &mut TcpStream, body: &[u8]) -> Result<()> {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let result = match asked.pointer("/method").and_then(Value::as_str) {
        Some("initialize") => json!({
            "protocolVersion": asked.pointer("/params/protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "endless", "version": "1"},
        }),
        Some("tools/list") => {
            let tool = json!({"name": "t", "description": "x".repeat(100_000), "inputSchema": {"type": "object"}});
            json!({"tools": [tool], "nextCursor": "on"})
        }
        _ => {
            stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
            return Ok(());
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": asked.pointer("/id"), "result": result}).to_string();
    let length = body.len();
    let head = format!("Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close");
    Ok(write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}")?)
}
