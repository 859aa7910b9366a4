//! The keys and certificates of peers that encrypt, made anew for each server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::network::{Side, address};
use crate::process::{Doing, Result, Stop, run};

/// The keys of a target of ours and of its host.
pub(crate) struct Keys {
    target_file: PathBuf,
    host_file: PathBuf,
    target: String,
    host: String,
}

impl Keys {
    /// Makes them with `tyche`, in files of this directory.
    pub(crate) fn make(tyche: &Path, dir: &Path, stop: &Stop) -> Result<Self> {
        let [target_file, host_file] = ["target.key", "host.key"].map(|name| dir.join(name));
        let make = |file: &Path| {
            let public = run(Command::new(tyche).args(["key", "generate"]).arg(file), stop)?;
            Ok(public.trim().to_owned())
        };
        let (target, host) = (make(&target_file)?, make(&host_file)?);
        Ok(Self { target_file, host_file, target, host })
    }

    /// Gives `tyche serve` its key, and that of its only host.
    pub(crate) fn serve(&self, serve: &mut Command) {
        serve.arg("--key").arg(&self.target_file).args(["--host", &format!("bench={}", self.host)]);
    }

    /// Gives our engine of fio both.
    pub(crate) fn connect(&self, fio: &mut Command) {
        fio.arg(format!("--target_key={}", self.target));
        fio.arg(format!("--key={}", self.host_file.display()));
    }
}

/// Makes a certificate for nbdkit that has signed itself, and returns its directory. A copy is
/// where libnbd looks for those that it trusts, with `dir` as home directory.
pub(crate) fn certify(dir: &Path, stop: &Stop) -> Result<PathBuf> {
    let (server, client) = (dir.join("pki"), dir.join(".pki/libnbd"));
    for made in [&server, &client] {
        fs::create_dir_all(made).doing(made.display())?;
    }
    let certificate = server.join("server-cert.pem");
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=bench"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-addext", &format!("subjectAltName=IP:{}", address(Side::Target, 0))]);
    openssl.arg("-keyout").arg(server.join("server-key.pem")).arg("-out").arg(&certificate);
    run(&mut openssl, stop)?;
    for trusting in [&server, &client] {
        let trusted = trusting.join("ca-cert.pem");
        fs::copy(&certificate, &trusted).doing(trusted.display())?;
    }
    Ok(server)
}
