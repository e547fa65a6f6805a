package report

import (
	"fmt"
	"io"
	"strings"
)

// Again prints and writes a record that was made before, which is in one file or more.
func Again(files string, o Outputs, stdout io.Writer) (*Record, error) {
	rec, err := readRecords(strings.Split(files, ","))
	if err != nil {
		return nil, err
	}
	for _, s := range rec.Subjects {
		s.Write(stdout)
	}
	return rec, o.Write(rec)
}

// Verdict says whether everything holds. It returns the exit status, which is 0 for a quick run in
// any case.
func Verdict(rec *Record, report bool, stdout io.Writer) int {
	broken := rec.broken()
	if len(broken) == 0 {
		fmt.Fprintln(stdout, "\nEverything holds.")
		return 0
	}
	fmt.Fprintf(stdout, "\nDoes not hold:\n  %s\n", strings.Join(broken, "\n  "))
	if rec.Quick {
		fmt.Fprintln(stdout, "So little was measured that this may be chance.")
	}
	if report || rec.Quick {
		return 0
	}
	return 1
}
