package reexec_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// keeper is the state of a worker in these tests.
type keeper struct {
	line *reexec.Line
	sum  int
}

var (
	tasks   reexec.Tasks[*keeper]
	addTask = reexec.Add(&tasks, "add", func(_ context.Context, k *keeper, n int) (int, error) {
		if n < 0 {
			return 0, errors.New("too few")
		}
		for i := range n {
			k.line.At(i+1, n)
			k.sum++
		}
		return k.sum, nil
	})
	waitTask = reexec.Add(&tasks, "wait", func(ctx context.Context, _ *keeper, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	hangTask = reexec.Add(&tasks, "hang", func(context.Context, *keeper, struct{}) (struct{}, error) { select {} })
)

const tasksVariable = "HOLDFAST_TEST_REEXEC_TASKS"

// serveTasks is the worker's main.
func serveTasks() int {
	k := &keeper{line: reexec.NewLine(os.Stdin, os.Stdout)}
	if tasks.Serve(k.line, k, time.Minute) != nil {
		return 1
	}
	return 0
}

func startTasks(t *testing.T) *reexec.Worker {
	t.Helper()
	w, err := reexec.Start(t.Context(), tasksVariable, "", os.Stderr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestTask_WorkersKeepWhatTheyHave(t *testing.T) {
	ws := []*reexec.Worker{startTasks(t), startTasks(t)}
	var steps atomic.Int64
	for _, w := range ws {
		w.Limit, w.Step = time.Minute, func(int, int) { steps.Add(1) }
	}
	if n, err := addTask.Do(ws[0], 2); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if all, err := addTask.All(ws, 3); !slices.Equal(all, []int{5, 3}) || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := addTask.Do(ws[0], -1); err == nil || err.Error() != "too few" {
		t.Error(err)
	}
	if n := steps.Load(); n != 8 {
		t.Errorf("%d steps", n)
	}
	for _, w := range ws {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := addTask.Do(w, 1); err == nil {
			t.Error("a worker that has ended does a task")
		}
	}
}

// The end of the input ends the task under way.
func TestTask_EndsWithTheWorker(t *testing.T) {
	w := startTasks(t)
	done := make(chan error, 1)
	go func() {
		_, err := waitTask.Do(w, struct{}{})
		done <- err
	}()
	if err := w.In.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a task that was cut short has an answer")
	}
	if err := w.Cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A worker that says nothing for its limit is killed, and a task that does not end with its context
// ends with the process.
func TestTask_AWorkerThatHangs(t *testing.T) {
	w := startTasks(t)
	if n, err := addTask.Do(w, 1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	w.Limit = time.Millisecond
	if _, err := hangTask.Do(w, struct{}{}); err == nil || !strings.Contains(err.Error(), "killed after 1ms in hang") {
		t.Error(err)
	}
	if err := w.Stop(); err == nil {
		t.Error("it was not killed")
	}
}

func TestTask_ThatNoWorkerHas(t *testing.T) {
	var others reexec.Tasks[int]
	unknown := reexec.Add(&others, "unknown", func(context.Context, int, int) (int, error) { return 0, nil })
	w := startTasks(t)
	if _, err := unknown.Do(w, 1); err == nil || err.Error() != `no task "unknown"` {
		t.Error(err)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("two tasks have a name")
		}
	}()
	reexec.Add(&others, "unknown", func(context.Context, int, int) (int, error) { return 0, nil })
}

// An order that a worker cannot read is an error of that task.
func TestTasks_LinesThatAreWrong(t *testing.T) {
	var out bytes.Buffer
	in := strings.NewReader(`{"do":"add","with":"many"}` + "\n")
	k := &keeper{line: reexec.NewLine(in, &out)}
	if err := tasks.Serve(k.line, k, time.Hour); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "cannot unmarshal string") && out.Len() > 0 { // the input may have ended before the task
		t.Errorf("%s", out.String())
	}
}
