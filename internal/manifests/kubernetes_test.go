package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const file = "../../docs/deploy/kubernetes.yaml"

// decode decodes documents as the API server does with fieldValidation=Strict: a field that is
// unknown, or there twice, is an error.
func decode(text []byte) (all []runtime.Object, err error) {
	s := runtime.NewScheme()
	if err := errors.Join(apps.AddToScheme(s), core.AddToScheme(s), networking.AddToScheme(s), policy.AddToScheme(s)); err != nil {
		return nil, err
	}
	d := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		o, _, err := d.Decode(doc, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(all)+1, err)
		}
		all = append(all, o)
	}
}

// objects are those of the file.
type objects struct {
	deployment *apps.Deployment
	budget     *policy.PodDisruptionBudget
	network    *networking.NetworkPolicy
}

func read(t *testing.T) (x objects, text []byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		switch o := o.(type) {
		case *apps.Deployment:
			x.deployment = o
		case *policy.PodDisruptionBudget:
			x.budget = o
		case *networking.NetworkPolicy:
			x.network = o
		default:
			t.Errorf("a %T, of which the test knows nothing", o)
		}
	}
	if x.deployment == nil || x.budget == nil || x.network == nil {
		t.Fatalf("%+v", x)
	}
	return x, text
}

// selects reports that a selector takes the pods.
func selects(t *testing.T, what string, s *meta.LabelSelector, pods map[string]string) {
	t.Helper()
	x, err := meta.LabelSelectorAsSelector(s)
	if err != nil || x.Empty() || !x.Matches(labels.Set(pods)) {
		t.Errorf("%s: %v does not select %v: %v", what, s, pods, err)
	}
}

// The manifests agree with each other: labels, ports, probes, and the ports that nodes use.
func TestKubernetes(t *testing.T) {
	x, _ := read(t)
	pod := x.deployment.Spec.Template
	selects(t, "the deployment", x.deployment.Spec.Selector, pod.Labels)
	selects(t, "the budget", x.budget.Spec.Selector, pod.Labels)
	selects(t, "the policy", &x.network.Spec.PodSelector, pod.Labels)
	if *pod.Spec.TerminationGracePeriodSeconds < 10 || *x.deployment.Spec.Replicas < 2 || x.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%+v, %+v", pod.Spec, x.budget.Spec)
	}
	c := pod.Spec.Containers[0]
	if _, limited := c.Resources.Limits[core.ResourceCPU]; limited {
		t.Error("there is a CPU limit: a throttled pod loses its locks")
	}
	ports := make(map[string]int32)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for what, probe := range map[string]*core.Probe{"ready": c.ReadinessProbe, "live": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || ports[probe.HTTPGet.Port.StrVal] == 0 {
			t.Errorf("%s: %+v; there are the ports %v", what, probe, ports)
		}
	}
	open := openTo(t, x.network, pod.Labels)
	for _, want := range []string{
		fmt.Sprint("TCP ", ports["gossip"]), fmt.Sprint("UDP ", ports["gossip"]), fmt.Sprint("TCP ", ports["peer"]), "TCP 7946", "UDP 7946", "TCP 7947",
	} {
		if !open[want] {
			t.Errorf("%s is closed between the pods, of %v", want, open)
		}
	}
}

// openTo returns the ports that a policy opens to pods.
func openTo(t *testing.T, network *networking.NetworkPolicy, pods map[string]string) map[string]bool {
	t.Helper()
	open := make(map[string]bool)
	for _, rule := range network.Spec.Ingress {
		for _, from := range rule.From {
			s, err := meta.LabelSelectorAsSelector(from.PodSelector)
			if err != nil || s.Empty() {
				t.Errorf("%v: %v", from.PodSelector, err)
			}
			for _, p := range rule.Ports {
				if s.Matches(labels.Set(pods)) {
					open[fmt.Sprint(*p.Protocol, " ", p.Port.IntValue())] = true
				}
			}
		}
	}
	return open
}

// The command in a pod of its own reaches the nodes' peer port, and nothing else; its documentation
// gives the pod's label.
func TestKubernetes_TheCommandReachesTheNodes(t *testing.T) {
	x, _ := read(t)
	page, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`kubectl run .*--labels app=(\S+)`).FindSubmatch(page)
	if label == nil {
		t.Fatal("docs/command.md has no such line")
	}
	if open := openTo(t, x.network, map[string]string{"app": string(label[1])}); !reflect.DeepEqual(open, map[string]bool{"TCP 7947": true}) {
		t.Errorf("open to the command: %v", open)
	}
}

// The command in a pod of its own gets its URL from the Secret that the application has it from:
// all text in the pod's description, the password included, can be read with the pod.
func TestKubernetes_TheCommandsPasswordIsInASecret(t *testing.T) {
	x, _ := read(t)
	page, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	run := regexp.MustCompile(`(?s)kubectl run (\S+) (.*?)--override-type strategic --overrides '(\{.*?)(\})'(.*?)\n\n`).FindSubmatch(page)
	if run == nil {
		t.Fatal("docs/command.md has no such command")
	}
	if around := string(run[2]) + string(run[5]); strings.Contains(around, "HOLDFAST_URL") || strings.Contains(around, "://") {
		t.Errorf("the URL is in the pod's description: %s", around)
	}
	all, err := decode([]byte(string(run[3]) + `, "apiVersion": "v1", "kind": "Pod"}`))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	c := all[0].(*core.Pod).Spec.Containers
	if len(c) != 1 || c[0].Name != string(run[1]) || len(c[0].Env) != 1 || c[0].Env[0].Name != "HOLDFAST_URL" {
		t.Fatalf("%+v is not merged into the container of kubectl run %s", c, run[1])
	}
	for _, e := range x.deployment.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "REDIS_URL" && reflect.DeepEqual(e.ValueFrom, c[0].Env[0].ValueFrom) {
			return
		}
	}
	t.Errorf("the application has its URL from elsewhere than %+v", c[0].Env[0].ValueFrom)
}

// The test sees errors: a field with a wrong name, one of a wrong type, and one that is there
// twice.
func TestKubernetes_AWrongFieldFails(t *testing.T) {
	_, text := read(t)
	for from, to := range map[string]string{
		"readinessProbe:":                    "readynessProbe:",
		"terminationGracePeriodSeconds: 30":  "terminationGracePeriodSeconds: soon",
		"maxUnavailable: 1":                  "maxUnavailable: 1\n  maxUnavailable: 1",
		"policy/v1":                          "policy/v1beta9",
		"fieldPath: status.podIP":            "fieldpath: status.podIP",
		"ingress:":                           "ingres:",
		"limits: {memory: 256Mi}":            "limits: {memory: much}",
		"{name: http, containerPort: 8080},": "{name: http, port: 8080},",
	} {
		wrong := bytes.Replace(text, []byte(from), []byte(to), 1)
		if bytes.Equal(wrong, text) {
			t.Errorf("there is no %q", from)
		}
		if _, err := decode(wrong); err == nil {
			t.Errorf("%q passes", to)
		}
	}
}

// The page about security has the same policy.
func TestKubernetes_AsInSecurity(t *testing.T) {
	x, _ := read(t)
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("there is no manifest in it")
	}
	all, err := decode(block[1])
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0], runtime.Object(x.network)) {
		t.Errorf("%v: %+v, want %+v", err, all, x.network)
	}
}

// The runbook shows a part of the same file.
func TestKubernetes_AsInTheRunbook(t *testing.T) {
	_, text := read(t)
	book, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(book)
	if block == nil {
		t.Fatal("there is no manifest in it")
	}
	all := strings.Split(string(text), "\n")
	for line := range strings.Lines(string(block[1])) {
		if !slices.Contains(all, strings.TrimSuffix(line, "\n")) {
			t.Errorf("docs/deploy/kubernetes.yaml lacks %q", line)
		}
	}
}
