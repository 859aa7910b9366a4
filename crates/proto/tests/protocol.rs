//! PROTOCOL.md and its annexes have the timers and bounds of this crate, the sections that the code
//! refers to, and a handshake with keys.

use std::fs;
use std::path::{Path, PathBuf};

const CORE: &str = "PROTOCOL.md";
const ANNEXES: &str = "docs/protocol-annexes.md";

/// A document of the repository.
fn document(path: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(repository.join(path)).unwrap()
}

/// All sources below a directory, one after the other.
fn sources(directory: &Path) -> String {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    let text = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => fs::read_to_string(path).unwrap(),
    };
    paths.into_iter().map(text).collect()
}

fn source() -> String {
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// The value of a constant as the document writes it.
fn value(source: &str, name: &str) -> String {
    let definition = source.split_once(&format!("const {name}: ")).map(|(_, rest)| rest);
    let definition = definition.and_then(|rest| rest.split_once(';')).map(|(this, _)| this);
    let (_, value) = definition.and_then(|it| it.split_once(" = ")).expect(name);
    let value = value.replace('_', "");
    let in_units = [("Duration::fromsecs(", "s"), ("Duration::frommillis(", "ms")];
    let in_units = in_units.into_iter().chain([("Duration::frommicros(", "µs")]);
    for (function, unit) in in_units {
        if let Some(number) = value.strip_prefix(function) {
            return format!("{} {unit}", number.trim_end_matches(')'));
        }
    }
    match value.parse::<u64>() {
        Ok(ns) if name.contains("_NS_") && ns.is_multiple_of(1_000_000_000) => {
            format!("{} s", ns / 1_000_000_000)
        }
        Ok(ns) if name.contains("_NS_") => format!("{} ms", ns / 1_000_000),
        Ok(number) => number.to_string(),
        Err(_) => value,
    }
}

#[test]
fn the_table_of_timers_has_the_constants() {
    let source = source();
    let mut rows = Vec::new();
    for (path, heading) in [(CORE, "\n### Timers and bounds\n"), (ANNEXES, "\n### More timers\n")] {
        let document = document(path);
        let (_, section) = document.split_once(heading).unwrap();
        let lines = section.lines().take_while(|line| !line.starts_with('#'));
        rows.extend(lines.map(str::to_owned));
    }
    let rows = rows.iter().map(String::as_str);
    let mut checked = 0;
    for row in rows.filter(|line| line.starts_with("| `") && !line.starts_with("| `keep_alive`")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let names = cells[0].split('`').skip(1).step_by(2);
        let values = names.clone().map(|name| value(&source, name).replace("1 << 24", "2²⁴"));
        let values: Vec<String> = values.collect();
        assert_eq!(values.join(", "), cells[1], "{}", cells[0]);
        checked += names.count();
    }
    assert!(checked > 35, "only {checked} constants are in the table");
}

#[test]
fn sections_that_the_code_names_are_there() {
    let source = source().replace("\n//! ", " ");
    for path in [CORE, ANNEXES] {
        let document = document(path);
        let before = format!("{path}, \"");
        let named = source.split(&before).skip(1);
        for section in named.map(|rest| rest.split('"').next().unwrap()) {
            let heading =
                document.lines().any(|line| line.trim_start_matches('#') == format!(" {section}"));
            assert!(heading, "{path} has no section {section:?}");
        }
    }
}
