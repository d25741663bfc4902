//! A tool that streams the lines of a log that hold a text, one part for each line.
#[path = "../../../../sdk/guest/rust/sandboxd.rs"]
#[allow(dead_code)]
mod sandboxd;
use sandboxd::{quote, tool, Answer, Call, Error};

const LONGEST: usize = 400; // bytes that are shown of a line

#[no_mangle]
pub extern "C" fn find_lines() -> i32 {
    tool(find)
}

fn find(c: &Call) -> Result<Answer, Error> {
    let name = format!("logs/{}", c.arg("/file").text_or(""));
    let text = c.arg("/text").text_or("");
    let mut left = c.arg("/most").int().unwrap_or(10);
    let (mut number, mut offset, mut line) = (0, 0, Vec::new());
    while left > 0 {
        let bytes = c.artifact(&name, 0, offset)?;
        if bytes.is_empty() {
            break;
        }
        offset += bytes.len() as i64;
        for b in bytes {
            if b != b'\n' {
                line.push(b);
                continue;
            }
            number += 1;
            // What is no UTF-8 is shown as such, and everything else as it stands there: to make
            // it safe to look at is the business of those who show it.
            let said = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if left > 0 && said.contains(&text) {
                c.emit(quote(&format!("{}: {}\n", number, cut(&said))))?;
                left -= 1;
            }
        }
    }
    c.nothing()
}

/// The beginning of a line, of whole characters.
fn cut(line: &str) -> &str {
    let mut n = line.len().min(LONGEST);
    while !line.is_char_boundary(n) {
        n -= 1;
    }
    &line[..n]
}
