package manifests

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

const composeFile = "../../docs/deploy/compose.yaml"

// load loads a file as docker compose does: by the schema of the specification, with the variable
// that it wants.
func load(t *testing.T, text []byte, env types.Mapping) (*types.Project, error) {
	t.Helper()
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: t.TempDir(), ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: text}}, Environment: env,
	}, func(o *loader.Options) { o.SetProjectName("shop", true) })
}

func TestCompose(t *testing.T) {
	text, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	image := types.Mapping{"SHOP_IMAGE": "example.com/shop"}
	p, err := load(t, text, image)
	if err != nil {
		t.Fatal(err)
	}
	shop, redis := p.Services["shop"], p.Services["redis"]
	if shop.Image != "example.com/shop" || shop.DependsOn["redis"].Condition != types.ServiceConditionHealthy || redis.HealthCheck == nil {
		t.Errorf("%+v", shop)
	}
	if shop.Deploy == nil || shop.Deploy.Replicas == nil || *shop.Deploy.Replicas < 2 || len(shop.Ports) > 0 || shop.CPUS != 0 || shop.CPUQuota != 0 {
		t.Errorf("%+v", shop.Deploy)
	}
	if shop.StopGracePeriod == nil || time.Duration(*shop.StopGracePeriod) < 10*time.Second {
		t.Errorf("it is killed after %v", shop.StopGracePeriod)
	}
	if i := slices.Index(redis.Command, "--maxmemory-policy"); i < 0 || redis.Command[i+1] != "noeviction" {
		t.Errorf("%v", redis.Command)
	}
	if _, err := load(t, text, nil); err == nil {
		t.Error("it needs no image")
	}
	for from, to := range map[string]string{
		"healthcheck:": "healtcheck:", "stop_grace_period: 30s": "stop_grace_period: soon", "deploy: {replicas: 3}": "deploy: {replica: 3}",
		"condition: service_healthy": "condition: service_happy", "depends_on: {redis:": "depends_on: {redys:",
	} {
		wrong := bytes.Replace(text, []byte(from), []byte(to), 1)
		if bytes.Equal(wrong, text) {
			t.Errorf("there is no %q", from)
		}
		if _, err := load(t, wrong, image); err == nil {
			t.Errorf("%q passes", to)
		}
	}
}
