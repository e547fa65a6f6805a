package report

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// machineRecord is what a measurement was made on.
type machineRecord struct {
	Cores   int      `json:"cores"`
	CPU     string   `json:"cpu"` // model; empty: unknown
	OS      string   `json:"os"`
	Kernel  string   `json:"kernel"`
	Go      string   `json:"go"`
	Servers []string `json:"servers"`
}

func ThisMachine(servers []string) machineRecord {
	m := machineRecord{
		Cores: runtime.NumCPU(), CPU: cpuModel(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Servers: servers,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	return m
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Commit says which source this was built from, with a "+" if it was changed since; empty where
// that is unknown.
func Commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		hash, changed := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				hash = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+"
			}
		}
		if hash != "" {
			return hash[:min(len(hash), 12)] + changed
		}
	}
	// "go run" leaves no trace of the source in the program; it was built where it runs, as a rule.
	hash, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	changed := "" // what a run has written into docs is no source
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(exclude,top)docs").Run() != nil {
		changed = "+"
	}
	return strings.TrimSpace(string(hash)) + changed
}
