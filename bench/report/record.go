package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
)

// Record is a whole run as -json writes it and -from reads it. Everything that is printed or drawn
// is in it, so a page can be made again, and better, from a measurement of long ago.
type Record struct {
	Format   int             `json:"format"` // recordFormat
	Date     time.Time       `json:"date"`
	Commit   string          `json:"commit"` // of the source; empty: unknown
	Command  string          `json:"command"`
	Quick    bool            `json:"quick"` // too little was measured to rely on it
	Machine  machineRecord   `json:"machine"`
	Subjects []subjectRecord `json:"subjects"`
}

const RecordFormat = 1

// subjectRecord is the result of one subject.
type subjectRecord struct {
	Name string `json:"name"`
	Result
}

// value is a figure; NaN, which is null in JSON: it was not measured.
type value float64

func (x value) known() bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

func (x value) String() string { return stats.Number(float64(x)) }

func (x value) MarshalJSON() ([]byte, error) {
	if !x.known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

func (x *value) UnmarshalJSON(text []byte) error {
	if *x = value(math.NaN()); string(text) == "null" {
		return nil
	}
	return json.Unmarshal(text, (*float64)(x))
}

// Figure is the data of one chart. One of an older record may have others than bars, which are left
// out.
type Figure struct {
	Bars *chart.Bars `json:"bars,omitempty"`
}

func (r *Record) Add(name string, x Result) {
	r.Subjects = append(r.Subjects, subjectRecord{name, x})
}

// broken lists the claims that do not hold.
func (r *Record) broken() (list []string) {
	for _, s := range r.Subjects {
		for _, c := range s.Claims {
			if !c.Holds {
				list = append(list, s.Name+": "+c.Text)
			}
		}
	}
	return list
}

func ReadRecord(file string) (*Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Format != RecordFormat {
		return nil, fmt.Errorf("%s: format %d, want %d", file, r.Format, RecordFormat)
	}
	return r, nil
}

// readRecords puts records together, of runs in which different subjects were measured. They have
// to be of one machine and one source, or figures side by side cannot be compared.
func readRecords(files []string) (all *Record, err error) {
	for _, file := range files {
		r, err := ReadRecord(file)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = r
			continue
		}
		a, b := all.Machine, r.Machine
		if all.Commit != r.Commit || a.CPU != b.CPU || a.Cores != b.Cores || a.Kernel != b.Kernel || a.Go != b.Go {
			return nil, fmt.Errorf("%s and %s are of different machines or commits", files[0], file)
		}
		for _, s := range r.Subjects {
			if slices.ContainsFunc(all.Subjects, func(x subjectRecord) bool { return x.Name == s.Name }) {
				return nil, fmt.Errorf("%s: %s was measured before", file, s.Name)
			}
		}
		for _, server := range b.Servers {
			if !slices.Contains(all.Machine.Servers, server) {
				all.Machine.Servers = append(all.Machine.Servers, server)
			}
		}
		all.Subjects = append(all.Subjects, r.Subjects...)
		all.Quick = all.Quick || r.Quick
		all.Command += "; " + r.Command
	}
	return all, nil
}

func (r *Record) write(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// machineRecord is the machine of a measurement.
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

// Commit says which source this was built from, where it runs, with a "+" if it was changed since;
// empty where that is unknown. "go run" leaves no trace of the source in the program.
func Commit() string {
	hash, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	changed := "" // a run's output in docs is no source
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(exclude,top)docs").Run() != nil {
		changed = "+"
	}
	return strings.TrimSpace(string(hash)) + changed
}
