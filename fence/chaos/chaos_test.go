package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		os.Exit(work(text))
	}
	os.Exit(m.Run())
}

// The short form: holders that are stopped by SIGSTOP lose nothing that is guarded.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	var out strings.Builder
	err := chaos(t.Context(), strings.Fields("-db sqlite -variants Table.DoTx,Column.DoTx -duration 8s"), &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Error(err)
	}
}

// A run in which something was lost fails, and so does one that shows nothing.
func TestJudge(t *testing.T) {
	good := result{Guarded: true, Stops: 1, tally: tally{Done: 1}}
	if err := judge([]result{good}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(r *result){
		"2 updates were lost":             func(r *result) { r.Lost = 2 },
		"3 updates were not acknowledged": func(r *result) { r.Lost = -3 },
		"0 stops":                         func(r *result) { r.Stops = 0 },
		"4 times ouch":                    func(r *result) { r.Errors = map[string]int64{"ouch": 4} },
	} {
		r := good
		change(&r)
		if err := judge([]result{r}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"-db oracle", "-variants none", "-workers 1", "-duration 1s"} {
		if err := chaos(t.Context(), strings.Fields(args), new(strings.Builder)); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
}
