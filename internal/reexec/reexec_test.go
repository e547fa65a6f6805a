package reexec_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

const variable = "HOLDFAST_TEST_REEXEC"

type order struct{ Text string }

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(tasksVariable); ok {
		os.Exit(serveTasks())
	}
	if text := os.Getenv(variable); text != "" {
		var o order
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			os.Exit(2)
		}
		fmt.Println(o.Text)
		_, _ = io.Copy(os.Stdout, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestStart(t *testing.T) {
	w, err := reexec.Start(t.Context(), variable, order{"hello"}, os.Stderr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w.In, "echo")
	_ = w.In.Close()
	if out, err := io.ReadAll(w.Out); err != nil || string(out) != "hello\necho" {
		t.Errorf("%q, %v", out, err)
	}
	if err := w.Cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The end of the context ends the worker's stdin, and so the worker.
func TestStart_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w, err := reexec.Start(ctx, variable, order{"hello"}, os.Stderr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(w.Out); err != nil {
		t.Error(err)
	}
	if _ = w.Cmd.Wait(); !w.Cmd.ProcessState.Success() {
		t.Error(w.Cmd.ProcessState)
	}
}

func TestStart_AnOrderThatIsNone(t *testing.T) {
	if _, err := reexec.Start(t.Context(), variable, func() {}, os.Stderr, 0); err == nil {
		t.Error("no error")
	}
}
