package prometheus

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// WaitOptions are the options of [NewWaits]. The zero value is valid, and so is a nil pointer.
type WaitOptions struct {
	// Labels are added to each metric, as those of [Options].
	Labels prometheus.Labels

	// KeyClass returns the class of a key, which becomes a label. A key never does: there are too
	// many. After 100 classes further ones are "other". Default: the text before the first slash,
	// "" for a key without one.
	KeyClass func(key string) string

	// Exemplar returns the labels of an exemplar, such as the trace's ID, from the context of the
	// call that waited; nil: none. They have 128 characters at most in all. Default: no exemplars.
	Exemplar func(ctx context.Context) prometheus.Labels
}

// Waits is a histogram of the waits for locks, by class of the key. It is also by path (see
// [coord.Path]) where the caller got the lock, and by error where it did not. Register it, and give
// its Observe to the coordinator:
//
//	waits := holdfastprometheus.NewWaits(nil)
//	locks, err := coord.New(ctx, arbiter, &coord.Options{Trace: &coord.Trace{Waited: waits.Observe}})
//
// It costs those that wait, and no other lock.
type Waits struct {
	*prometheus.HistogramVec
	classes  *telemetry.Classes
	exemplar func(ctx context.Context) prometheus.Labels
}

// NewWaits returns a histogram without waits. opts may be nil.
func NewWaits(opts *WaitOptions) *Waits {
	if opts == nil {
		opts = &WaitOptions{}
	}
	all := make([]float64, len(bounds))
	for i, b := range bounds {
		all[i] = b.Seconds()
	}
	return &Waits{
		HistogramVec: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_lock_class_wait_duration_seconds", Help: "How long callers waited for a lock, those that waited, by class of the key and path.",
			ConstLabels: opts.Labels, Buckets: all,
		}, []string{"class", "path", "error"}),
		classes: telemetry.NewClasses(opts.KeyClass), exemplar: opts.Exemplar,
	}
}

// Observe is for [coord.Trace]. It is safe for concurrent use.
func (w *Waits) Observe(ctx context.Context, i coord.WaitInfo) {
	path := ""
	if i.Err == nil {
		path = i.Path.String()
	}
	h := w.WithLabelValues(w.classes.Of(i.Key), path, telemetry.ErrorType(i.Err))
	if w.exemplar != nil {
		if labels := w.exemplar(ctx); labels != nil {
			if x, ok := h.(prometheus.ExemplarObserver); ok {
				x.ObserveWithExemplar(i.Waited.Seconds(), labels)
				return
			}
		}
	}
	h.Observe(i.Waited.Seconds())
}
