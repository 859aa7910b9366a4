//! No circles between the modules of a crate.
//!
//! Each folder is looked at on its own: its modules are the nodes, each with all that lies below
//! it. A module depends on its sibling if a file of the one names something that a file of the
//! other defines, by a `use` or by a path that begins with `crate`, `super` or `self`. A name that
//! a module in between only passes on (`pub use`) counts where it is defined. These dependencies
//! must not form a circle.
//!
//! A parent may use its children, and they may use what it defines itself: that is how Rust folders
//! are written, and no dependency between siblings. Tests don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::source::Source;
use crate::{Result, root};

/// The path of a module within its crate.
type Name = Vec<String>;

/// The modules of a crate.
type Modules = BTreeMap<Name, Module>;

struct Module {
    /// Where to look for it, from the repository's root.
    file: String,
    source: Source,
}

/// Dependencies between the modules of one folder, each with a file and a path that show it.
type Edges = BTreeMap<(String, String), String>;

/// All circles, each with the dependencies that make it.
pub(super) fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for folder in crate_folders()? {
        for file in ["src/lib.rs", "src/main.rs"] {
            let file = format!("{folder}/{file}");
            if root().join(&file).exists() {
                let mut modules = Modules::new();
                read(&mut modules, Vec::new(), &file)?;
                findings.extend(find(&modules));
            }
        }
    }
    Ok(findings)
}

/// The folders of all our crates.
pub(super) fn crate_folders() -> Result<Vec<String>> {
    let explain = |error| format!("crates: {error}");
    let mut folders = vec!["bench".to_owned(), "xtask".to_owned()];
    for entry in fs::read_dir(root().join("crates")).map_err(explain)? {
        let name = entry.map_err(explain)?.file_name();
        folders.push(format!("crates/{}", name.to_string_lossy()));
    }
    folders.sort_unstable();
    Ok(folders)
}

/// Reads a module, and those below it.
fn read(modules: &mut Modules, name: Name, file: &str) -> Result<()> {
    let text = fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))?;
    let source = Source::parse(&text);
    for child in &source.modules {
        let below = find_file(file, child, |file| root().join(file).exists())
            .ok_or_else(|| format!("{file}: no file for module {child}"))?;
        let name = name.iter().chain([child]).cloned().collect();
        read(modules, name, &below)?;
    }
    modules.insert(name, Module { file: file.to_owned(), source });
    Ok(())
}

/// The file of a module that `parent` declares.
fn find_file(parent: &str, child: &str, exists: impl Fn(&Path) -> bool) -> Option<String> {
    let path = Path::new(parent);
    let folder = match path.file_stem()?.to_str()? {
        "lib" | "main" | "mod" => path.parent()?.to_owned(),
        _ => path.with_extension(""),
    };
    let files: [PathBuf; 2] =
        [format!("{child}.rs"), format!("{child}/mod.rs")].map(|file| folder.join(file));
    files.into_iter().find(|file| exists(file))?.to_str().map(str::to_owned)
}

/// The circles of a crate: a line for each, followed by one for each dependency that makes it.
fn find(modules: &Modules) -> Vec<String> {
    let mut folders: BTreeMap<&[String], Edges> = BTreeMap::new();
    for (name, module) in modules {
        for path in &module.source.paths {
            let Some(target) = resolve(modules, name, path, 0) else { continue };
            let common = name.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (name.get(common), target.get(common)) {
                let edges = folders.entry(&name[..common]).or_default();
                let shown = format!("{} uses {}", module.file, path.join("::"));
                edges.entry((user.clone(), used.clone())).or_insert(shown);
            }
        }
    }
    let mut findings = Vec::new();
    for (folder, edges) in folders {
        for circle in components(&edges) {
            let folder = folder_of(modules, folder);
            let names: Vec<_> = circle.iter().cloned().collect();
            let inside =
                |(user, used): &(String, String)| circle.contains(user) && circle.contains(used);
            findings.push(format!("circle in {folder}: {}", names.join(", ")));
            let shown = edges.iter().filter(|(edge, _)| inside(edge));
            findings.extend(shown.map(|(_, shown)| format!("    {shown}")));
        }
    }
    findings
}

/// The folder of the modules below `name`.
fn folder_of(modules: &Modules, name: &[String]) -> String {
    let file = Path::new(&modules[name].file);
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => file.parent().unwrap_or(file).to_owned(),
        _ => file.with_extension(""),
    };
    folder.display().to_string()
}

/// The module in which the end of a path is defined; `None` if that is not in this crate.
fn resolve(modules: &Modules, from: &[String], path: &[String], depth: usize) -> Option<Name> {
    /// Imports of imports; more are a circle of their own.
    const DEPTH_MAX: usize = 16;
    if depth > DEPTH_MAX {
        return None;
    }
    let mut at = from.to_vec();
    for (index, segment) in path.iter().enumerate() {
        match segment.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            _ => {
                at.push(segment.clone());
                if modules.contains_key(&at) {
                    continue;
                }
                at.pop();
                let import =
                    modules[&at].source.imports.iter().find(|import| import.name == *segment);
                let Some(import) = import else {
                    // An item of this module, or a crate.
                    return (index > 0).then_some(at);
                };
                let target = resolve(modules, &at, &import.path, depth + 1);
                return target.or_else(|| (index > 0).then_some(at));
            }
        }
    }
    Some(at)
}

/// Groups of more than one node, in which each reaches each.
fn components(edges: &Edges) -> BTreeSet<BTreeSet<String>> {
    let reached = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(node) = open.pop() {
            let next = edges.keys().filter(|(user, _)| user == node).map(|(_, used)| used);
            open.extend(next.filter(|used| reached.insert((*used).clone())));
        }
        reached
    };
    let nodes: BTreeSet<_> = edges.keys().flat_map(|(user, used)| [user, used]).collect();
    let reach: BTreeMap<_, _> = nodes.iter().map(|node| (*node, reached(node))).collect();
    let mut circles = BTreeSet::new();
    for (node, others) in &reach {
        if others.contains(*node) {
            let circle = others.iter().filter(|other| reach[other].contains(*node));
            circles.insert(circle.cloned().collect());
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings in a crate made of files and their texts.
    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files.iter().map(|(file, text)| {
            let name = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let name = if name == "lib" {
                Vec::new()
            } else {
                name.split('/').map(str::to_owned).collect()
            };
            (name, Module { file: format!("src/{file}"), source: Source::parse(text) })
        });
        find(&modules.collect())
    }

    /// The circles alone, each as its folder and modules.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let findings = findings(files);
        findings.iter().filter_map(|it| it.strip_prefix("circle in ")).map(str::to_owned).collect()
    }

    #[test]
    fn siblings_may_not_use_each_other() {
        let one_way = [("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "")];
        assert!(circles(&one_way).is_empty());
        let both =
            [("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { super::a::g() }")];
        let shown = ["    src/a.rs uses crate::b::B", "    src/b.rs uses super::a::g"];
        assert_eq!(findings(&both), ["circle in src: a, b", shown[0], shown[1]]);
        let of_tests =
            [("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)] use crate::a;")];
        assert!(circles(&of_tests).is_empty());
    }

    #[test]
    fn longer_circles_are_found_in_their_folder() {
        let files = [
            ("lib.rs", ""),
            ("x/mod.rs", ""),
            ("x/a.rs", "use super::b;"),
            ("x/b.rs", "use crate::x::c::{self, C};"),
            ("x/c.rs", "use super::a::A;"),
            ("x/d.rs", "use super::{a, b, c};"),
        ];
        assert_eq!(circles(&files), ["src/x: a, b, c"]);
    }

    #[test]
    fn a_folder_counts_with_all_below_it() {
        let files = [
            ("lib.rs", ""),
            ("x/mod.rs", ""),
            ("x/deep.rs", "use crate::y;"),
            ("y.rs", "use crate::x::X;"),
        ];
        assert_eq!(circles(&files), ["src: x, y"]);
    }

    #[test]
    fn parents_and_children_may_use_each_other() {
        let files = [
            ("lib.rs", "use x::X; struct Error;"),
            ("x/mod.rs", "mod a; use a::A; struct X;"),
            ("x/a.rs", "use super::X; use crate::Error;"),
        ];
        assert!(circles(&files).is_empty());
    }

    #[test]
    fn names_count_where_they_are_defined() {
        let files = [
            ("lib.rs", "pub use x::Deep; use std::io;"),
            ("x/mod.rs", "pub(crate) use self::deep::D as Deep;"),
            ("x/deep.rs", "use crate::y; use crate::io;"),
            ("y.rs", "fn f(deep: crate::Deep) {}"),
        ];
        assert_eq!(circles(&files), ["src: x, y"]);
    }

    #[test]
    fn modules_have_one_of_two_files() {
        let find = |parent, there: &str| find_file(parent, "b", |file| file == Path::new(there));
        assert_eq!(find("src/lib.rs", "src/b.rs").as_deref(), Some("src/b.rs"));
        assert_eq!(find("src/a.rs", "src/a/b.rs").as_deref(), Some("src/a/b.rs"));
        assert_eq!(find("src/a/mod.rs", "src/a/b/mod.rs").as_deref(), Some("src/a/b/mod.rs"));
        assert_eq!(find("src/a.rs", "src/b.rs"), None);
    }
}
