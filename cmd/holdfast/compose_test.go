package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
)

const composeFile = "../../docker-compose.yml"

// No container engine is needed here: the file is loaded as `docker compose` does it, which checks it against
// the specification, and what makes it safe to run is looked up in the result.

func TestComposeRestsOnHealthyServices(t *testing.T) {
	t.Parallel()
	services := composeServices(t)
	got := map[string]map[string]string{}
	for name, service := range services {
		got[name] = map[string]string{}
		for other, dependency := range service.DependsOn {
			got[name][other] = dependency.Condition
			check := services[other].HealthCheck
			if dependency.Condition == types.ServiceConditionHealthy && (check == nil || len(check.Test) == 0) {
				t.Errorf("%s waits until %s is healthy, which has no health check", name, other)
			}
		}
	}
	want := map[string]map[string]string{
		"postgres": {},
		"redis":    {},
		"migrate":  {"postgres": types.ServiceConditionHealthy},
		"holdfast": {
			"postgres": types.ServiceConditionHealthy,
			"redis":    types.ServiceConditionHealthy,
			"migrate":  types.ServiceConditionCompletedSuccessfully,
		},
		"load": {"holdfast": types.ServiceConditionHealthy},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services and what they wait for (-want +got):\n%s", diff)
	}
	if check := services["holdfast"].HealthCheck; check == nil || !slices.Equal(check.Test, []string{"CMD", "/holdfast", "health"}) {
		t.Errorf("holdfast has the health check %v, want its own command", check)
	}
}

func TestComposePublishesOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	published := 0
	for name, service := range composeServices(t) {
		if service.NetworkMode != "" {
			t.Errorf("%s has the network mode %q", name, service.NetworkMode)
		}
		for _, port := range service.Ports {
			published++
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %d on %q, want 127.0.0.1", name, port.Target, port.HostIP)
			}
		}
	}
	if published == 0 {
		t.Error("no port is published")
	}
}

func TestComposeRedisRefusesToEvict(t *testing.T) {
	t.Parallel()
	command := composeServices(t)["redis"].Command
	at := slices.Index(command, "--maxmemory-policy")
	if at < 0 || at+1 == len(command) || command[at+1] != "noeviction" {
		t.Errorf("redis is started as %q, want --maxmemory-policy noeviction", command)
	}
}

func TestComposePinsImagesAndKeepsTheLedger(t *testing.T) {
	t.Parallel()
	services := composeServices(t)
	for name, service := range services {
		_, tag, _ := strings.Cut(service.Image, ":")
		if service.Build == nil && (tag == "" || tag == "latest") {
			t.Errorf("%s runs the image %q, want a tag", name, service.Image)
		}
	}
	volumes := services["postgres"].Volumes
	if len(volumes) != 1 || volumes[0].Type != types.VolumeTypeVolume || volumes[0].Source == "" ||
		volumes[0].Target != "/var/lib/postgresql/data" {
		t.Errorf("postgres has the volumes %v, want a named one for its data", volumes)
	}
}

// The service must understand what the file sets: a variable it does not know would be ignored without a word.
func TestComposeSetsTheServicesVariables(t *testing.T) {
	t.Parallel()
	var cfg config
	var args []string
	for name, value := range composeEnvironment(t, "holdfast") {
		args = append(args, "--"+strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "HOLDFAST_")), "_", "-")+"="+value)
	}
	parser, err := kong.New(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if err := cfg.check(); err != nil {
		t.Error(err)
	}
	if cfg.RedisURL == "" || cfg.Ledger.URL == "" || cfg.TokensFile == "" {
		t.Errorf("the service lacks a store or its tokens: %+v", cfg)
	}
	if got := composeEnvironment(t, "migrate"); len(got) != 1 || got["HOLDFAST_DATABASE_URL"] != cfg.Ledger.URL {
		t.Errorf("migrate has %v, want the service's database and nothing else", got)
	}
}

func TestComposeTokensAreValid(t *testing.T) {
	t.Parallel()
	const token = "holdfast-demo-token" // as the comment in the file and the documentation say
	project := composeProject(t)
	file := filepath.Join(t.TempDir(), "tokens.json")
	content := project.Configs["tokens"].Content
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httpapi.OpenClients(file); err != nil {
		t.Error(err)
	}
	if !strings.Contains(content, httpapi.HashToken(token)) {
		t.Errorf("no token is %s: %s", token, content)
	}
	mounted := project.Services["holdfast"].Configs
	if want := composeEnvironment(t, "holdfast")["HOLDFAST_TOKENS_FILE"]; len(mounted) != 1 || mounted[0].Target != want {
		t.Errorf("tokens are mounted as %v, want at %s", mounted, want)
	}
}

// The profile load runs the scripts that `make load` runs, with the token of the file.
func TestComposeLoadRunsTheScripts(t *testing.T) {
	t.Parallel()
	load := composeServices(t)["load"]
	scripts, err := filepath.Abs(scriptsDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(load.Volumes) != 1 || load.Volumes[0].Source != scripts || load.Volumes[0].Target != load.WorkingDir || !load.Volumes[0].ReadOnly {
		t.Errorf("load mounts %v and works in %s, want %s there, to read only", load.Volumes, load.WorkingDir, scripts)
	}
	if _, err := os.Stat(filepath.Join(scripts, load.Command[len(load.Command)-1])); err != nil {
		t.Error(err)
	}
	env := composeEnvironment(t, "load")
	if env["HOLDFAST_URL"] != "http://holdfast"+composeEnvironment(t, "holdfast")["HOLDFAST_ADDR"] {
		t.Errorf("load is sent to %s", env["HOLDFAST_URL"])
	}
	if tokens := composeProject(t).Configs["tokens"].Content; !strings.Contains(tokens, httpapi.HashToken(env["HOLDFAST_TOKEN"])) {
		t.Errorf("load has a token that is not in the file: %s", tokens)
	}
}

// composeEnvironment returns the HOLDFAST_* variables that the file sets for a service and their values.
func composeEnvironment(t *testing.T, service string) map[string]string {
	t.Helper()
	environment := map[string]string{}
	for name, value := range composeServices(t)[service].Environment {
		if !strings.HasPrefix(name, "HOLDFAST_") {
			continue
		}
		if value == nil {
			t.Fatalf("%s takes %s from whoever starts it", service, name)
		}
		environment[name] = *value
	}
	return environment
}

func composeServices(t *testing.T) types.Services {
	t.Helper()
	return composeProject(t).Services
}

// composeProject loads the file as it is for someone who has set no variable.
func composeProject(t *testing.T) *types.Project {
	t.Helper()
	file, err := filepath.Abs(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(file),
		ConfigFiles: []types.ConfigFile{{Filename: file, Content: content}},
	}, loader.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	return project
}
