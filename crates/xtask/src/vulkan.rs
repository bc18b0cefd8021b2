//! Makes sure that the GPU tests have a driver to run on.
//!
//! On Linux that is the Vulkan loader and at least one driver with something to drive: a real
//! GPU's where there is a device node, or a software one such as lavapipe. The loader's own rules
//! say where drivers are described (Vulkan-Loader, `LoaderDriverInterface.md`, "Driver
//! Discovery"). macOS has Metal and Windows has DX12; nothing is needed there.
//!
//! On Debian and its relatives a missing driver is installed; elsewhere the error says what to
//! install.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::workspace;

/// What Debian calls the loader and the drivers, lavapipe among them.
const DEBIAN_PACKAGES: [&str; 2] = ["libvulkan1", "mesa-vulkan-drivers"];

/// Variables that replace the loader's own search for drivers; the first that is set counts.
const OVERRIDES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// A driver manifest is a kilobyte; anything much longer is something else.
const MANIFEST_BYTES: u64 = 1 << 20;

/// Finds a driver or installs one; an error says what to do by hand.
pub(crate) fn ensure() -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("GPU driver: the system's own");
        return Ok(());
    }
    if let Some(driver) = find_driver() {
        println!("GPU driver: {}", driver.display());
        return Ok(());
    }
    println!("GPU driver: no Vulkan driver found");
    for variable in OVERRIDES {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            bail!("{variable} is set and names no usable driver; correct it or unset it");
        }
    }
    if !is_debian() {
        bail!("no Vulkan driver was found; {}", instructions());
    }
    apt_install(&DEBIAN_PACKAGES)?;
    match find_driver() {
        Some(driver) => println!("GPU driver: {}", driver.display()),
        None => bail!(
            "{} are installed, and yet no Vulkan driver was found in {}",
            DEBIAN_PACKAGES.join(" and "),
            folders_text(&manifest_folders())
        ),
    }
    Ok(())
}

/// Installs Debian packages, as root or through a `sudo` that asks nothing.
pub(crate) fn apt_install(packages: &[&str]) -> Result<()> {
    let prefix: &[&str] = if is_root() {
        &["env"]
    } else if workspace::answers("sudo", &["-n", "true"]) {
        &["sudo", "-n", "env"]
    } else {
        bail!(
            "installing needs root; run `apt-get update && apt-get install {}` as root",
            packages.join(" ")
        );
    };
    let apt = |arguments: &[&str]| {
        let mut command = workspace::command(prefix[0]);
        command.args(&prefix[1..]);
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
        // Another apt may hold the lock, on a machine that has just started for instance.
        command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]);
        command.args(arguments);
        workspace::run(&mut command)
    };
    if !apt(&["update"])? {
        println!("apt-get update failed; trying with the lists that are there");
    }
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend_from_slice(packages);
    if !apt(&install)? {
        bail!("apt-get could not install {}", packages.join(" "));
    }
    Ok(())
}

/// Whether this system installs Debian packages.
pub(crate) fn is_debian() -> bool {
    like_debian(&os_release()) && workspace::answers("apt-get", &["--version"])
}

fn is_root() -> bool {
    let output = workspace::command("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn os_release() -> String {
    std::fs::read_to_string("/etc/os-release").unwrap_or_default()
}

fn like_debian(os_release: &str) -> bool {
    ids(os_release).any(|id| matches!(id, "debian" | "ubuntu"))
}

/// The words of `ID` and `ID_LIKE`: the distribution and what it descends from.
fn ids(os_release: &str) -> impl Iterator<Item = &str> {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
}

fn instructions() -> String {
    let os_release = os_release();
    let known = ids(&os_release).find_map(|id| match id {
        "fedora" | "rhel" | "centos" => Some("dnf install mesa-vulkan-drivers vulkan-loader"),
        "arch" => Some("pacman -S vulkan-swrast vulkan-icd-loader"),
        "alpine" => Some("apk add mesa-vulkan-swrast vulkan-loader"),
        "suse" | "opensuse" => {
            Some("zypper install Mesa-vulkan-device-select libvulkan_lvp libvulkan1")
        }
        _ => None,
    });
    match known {
        Some(command) => format!("install one with `{command}`"),
        None => "install the Vulkan loader (libvulkan.so.1) and a driver, \
                 Mesa's lavapipe for instance"
            .to_owned(),
    }
}

/// The manifest of the first driver that can be used, if the loader is there too.
fn find_driver() -> Option<PathBuf> {
    find_library("libvulkan.so.1")?;
    let has_gpu = has_gpu_device();
    manifests()
        .into_iter()
        .find(|manifest| can_drive(manifest, has_gpu))
}

/// Whether a driver's library exists and has a device: a package of drivers describes many that
/// drive nothing on this machine.
fn can_drive(manifest: &Path, has_gpu: bool) -> bool {
    let Some(library) = library_of(manifest) else {
        return false;
    };
    let exists = match library.components().count() {
        0 => false,
        1 => find_library(&library.to_string_lossy()).is_some(),
        // A relative path is relative to the manifest; joining keeps an absolute one.
        _ => manifest
            .parent()
            .is_some_and(|folder| folder.join(&library).exists()),
    };
    exists && (has_gpu || is_software(&library))
}

fn library_of(manifest: &Path) -> Option<PathBuf> {
    if std::fs::metadata(manifest).ok()?.len() > MANIFEST_BYTES {
        return None;
    }
    let text = std::fs::read_to_string(manifest).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(PathBuf::from(
        json.get("ICD")?.get("library_path")?.as_str()?,
    ))
}

/// Lavapipe and SwiftShader run on the processor.
fn is_software(library: &Path) -> bool {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    ["lvp", "swiftshader", "vk_swiftshader"]
        .iter()
        .any(|word| name.contains(word))
}

/// Render nodes of the kernel, NVIDIA's own node, and the GPU that WSL passes through.
fn has_gpu_device() -> bool {
    let render_node = std::fs::read_dir("/dev/dri").is_ok_and(|mut nodes| {
        nodes.any(|node| {
            node.is_ok_and(|node| node.file_name().to_string_lossy().starts_with("renderD"))
        })
    });
    render_node || Path::new("/dev/nvidiactl").exists() || Path::new("/dev/dxg").exists()
}

/// Driver manifests in the order of the loader; a set variable replaces the folders.
fn manifests() -> Vec<PathBuf> {
    for variable in OVERRIDES {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            return expand(std::env::split_paths(&value));
        }
    }
    expand(manifest_folders().into_iter())
}

/// Files stay; a folder becomes its `.json` files, sorted.
fn expand(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        let Ok(entries) = std::fs::read_dir(&path) else {
            found.push(path);
            continue;
        };
        let mut inside: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        inside.sort();
        found.extend(inside);
    }
    found
}

fn manifest_folders() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut add = |variable: &str, fallback: Option<PathBuf>| match std::env::var_os(variable) {
        Some(value) if !value.is_empty() => roots.extend(std::env::split_paths(&value)),
        _ => roots.extend(fallback),
    };
    add(
        "XDG_CONFIG_HOME",
        home.as_ref().map(|home| home.join(".config")),
    );
    add("XDG_CONFIG_DIRS", Some(PathBuf::from("/etc/xdg")));
    add(
        "XDG_DATA_HOME",
        home.as_ref().map(|home| home.join(".local/share")),
    );
    add("XDG_DATA_DIRS", None);
    roots.extend(["/etc", "/usr/local/etc", "/usr/local/share", "/usr/share"].map(PathBuf::from));
    roots.iter().map(|root| root.join("vulkan/icd.d")).collect()
}

/// A shared library by its name: in the loader's own folders, then in `ldconfig`'s list.
fn find_library(name: &str) -> Option<PathBuf> {
    let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let machine = std::env::consts::ARCH;
    let triplet = format!("/usr/lib/{machine}-linux-gnu");
    let standard = [
        "/usr/local/lib",
        &triplet,
        "/usr/lib64",
        "/usr/lib",
        "/lib64",
        "/lib",
    ];
    let folders = std::env::split_paths(&variable).chain(standard.iter().map(PathBuf::from));
    let direct = folders
        .map(|folder| folder.join(name))
        .find(|path| path.exists());
    direct.or_else(|| {
        let output = ["ldconfig", "/sbin/ldconfig"]
            .iter()
            .find_map(|program| workspace::command(program).arg("-p").output().ok())?;
        let list = String::from_utf8_lossy(&output.stdout);
        let line = list
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name))?;
        let (_, path) = line.split_once(" => ")?;
        Some(PathBuf::from(path.trim()))
    })
}

fn folders_text(folders: &[PathBuf]) -> String {
    let folders: Vec<_> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    folders.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_relatives_are_told_from_others() {
        assert!(like_debian("PRETTY_NAME=\"Debian 12\"\nID=debian\n"));
        assert!(like_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!like_debian("ID=\"fedora\"\nVARIANT_ID=debian\n"));
        assert!(!like_debian(""));
    }

    #[test]
    fn a_driver_counts_only_with_its_library_and_a_device() {
        let folder = workspace::root().join("target/xtask-tests/icd.d");
        std::fs::create_dir_all(&folder).unwrap();
        let manifest = |file: &str, library: &str| {
            let path = folder.join(file);
            let text = format!(r#"{{"ICD": {{"library_path": "{library}"}}}}"#);
            std::fs::write(&path, text).unwrap();
            path
        };
        std::fs::write(folder.join("libvulkan_lvp.so"), "").unwrap();
        std::fs::write(folder.join("libvulkan_radeon.so"), "").unwrap();
        let software = manifest("a.json", "./libvulkan_lvp.so");
        let hardware = manifest("b.json", "./libvulkan_radeon.so");
        let missing = manifest("c.json", "./libvulkan_lvp_gone.so");
        assert!(can_drive(&software, false));
        assert!(can_drive(&hardware, true));
        assert!(!can_drive(&hardware, false), "no device node to drive");
        assert!(!can_drive(&missing, true), "no library");
        let json_only = expand([folder].into_iter());
        assert_eq!(json_only, [software, hardware, missing]);
    }
}
