"""The declaration of an attack: YAML keys, keywords of `rlab.attack` and command-line flags all come from these fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Field, InstanceOf, PlainSerializer, field_validator

from rlab.core import defaults
from rlab.core.attack import Attack
from rlab.core.channels import TOGETHER, parse_channels
from rlab.core.distances import Measure
from rlab.core.env import Accepting
from rlab.core.goals import USUAL, Goal, MultiLabel, Untargeted, parse_goal, with_positions
from rlab.core.grid import UNTOUCHED
from rlab.core.setting import Learned
from rlab.core.trace import Until
from rlab.data.batch import Samples
from rlab.data.eight_bit import EightBit
from rlab.data.load import DataOptions
from rlab.errors import OptionError
from rlab.filters.base import Filter
from rlab.filters.palette import PIXELS, FreePixels, by_gradient
from rlab.learning.simulator import Simulator, with_students
from rlab.policies import policy_spec
from rlab.policies.base import Policy
from rlab.policies.pixels import Values
from rlab.policies.resolve import label, resolve, resolve_pixels
from rlab.priors.gradients import gradient_filters
from rlab.priors.surrogates import Surrogate, SurrogatePrior, load_surrogates, surrogate_name
from rlab.results.kept import Keep
from rlab.runs.learning_options import LearningOptions
from rlab.runs.palette_options import PaletteOptions, is_whole, make_grid, make_palette, refuse_parts
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import Accepts, check
from rlab.victims.options import ModelOptions

_ROOM = 12  # inputs that a search over free pixels holds in memory per sample, plus two per surrogate


class AttackOptions(LearningOptions, PaletteOptions):
    """Options of an attack; the default of None depends on the kind of data."""

    goal: Annotated[str | InstanceOf[Goal] | None, PlainSerializer(str, when_used="json-unless-none")] = Field(
        None,
        description="goal: untargeted, targeted:CLASS (or second-best, least-likely, data), below:PROBABILITY, multilabel[:LABEL]; "
        "for boxes vanish, vanish-all, misclassify, move:IOU, appear[:CLASS], map50:VALUE (each may end in :SCORE); "
        "for maps iou:CLASS:VALUE, pixels:SHARE, lose:CLASS, grow:CLASS; for numbers deviate:AMOUNT, deviate:10%, "
        "above:VALUE, under:VALUE (default: untargeted; vanish, pixels:0.2, deviate:10%)",
    )
    budget: int | None = Field(
        None,
        ge=1,
        description="maximum queries per sample, cleanup and verification included (default: 1000; 10000 for video)",
    )
    policy: Annotated[str | InstanceOf[Policy[Any]], PlainSerializer(policy_spec, when_used="json")] = Field(
        defaults.POLICY,
        description="search policy: auto, belief, random, greedy, square, or the .safetensors file of a prior (default: auto)",
    )
    surrogate: Annotated[
        tuple[Any, ...] | None,
        Accepts(Surrogate | Sequence[Surrogate] | None),
        PlainSerializer(lambda models: [*map(surrogate_name, models)], when_used="json-unless-none"),
    ] = Field(
        None,
        description="your own models, on which the policy auto tries proposals before it queries, and whose gradients guide "
        "the belief search and drive the filters fgsm and pgd; they cost no queries, e.g. timm:resnet18 or my_module:net",
    )
    accept: Accepting = Field("better", description="which proposals to keep: better or always (default: better)")
    l2_penalty: float = Field(0.0, ge=0, description="cost of a unit of L2, as a share of the margin (default: 0)")
    until: Until = Field(
        "steady", description="when to stop: flip, steady (the distance stops falling) or budget (default: steady)"
    )
    distance: Measure | None = Field(
        None,
        description="distance to minimise: l2, map (mean absolute), l0 (changed points) or linf (default: l2; map for video)",
    )
    quantize: bool = Field(
        True,
        description="round inputs to 8 bits before the query if the data came as 8 bits, so that a saved picture flips the model "
        "too (default: yes)",
    )
    noisy: bool = Field(False, description="estimate output noise with a second clean query; flips must exceed it")
    cleanup: bool = Field(
        True, description="after a flip, restore patches that are not needed and prefer few patches (default: yes)"
    )
    patience: int | None = Field(
        None, ge=1, description="stop cleanup after this many failed tries in a row (default: try every patch)"
    )
    chunk: int | None = Field(
        None,
        ge=1,
        description="samples attacked together (default: by sample size and budget, so that runs are saved often)",
    )
    seed: int = Field(0, ge=-(2**63), lt=2**63, description="random seed (default: 0)")
    threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        exclude=True,
        description="threads of the CPU, for each worker; they may change the last bits of results (default: OMP_NUM_THREADS; "
        "for a torch model on a CPU one if it is small, otherwise all)",
    )

    @field_validator("surrogate", mode="before")
    @classmethod
    def _models(cls, value: Any) -> Any:
        """Accept one surrogate or several: names, torch modules or torch victims."""
        listed = [value] if value is not None and not isinstance(value, list | tuple) else value
        if wrong := [type(model).__name__ for model in listed or () if not isinstance(model, Surrogate)]:
            raise ValueError(f"a surrogate is a name, a torch module or a TorchVictim, not {wrong[0]}")
        return tuple(listed) if listed else None

    def filled(self, batch: Samples) -> tuple[Self, dict[str, Any]]:
        """Return the effective options for this data, and the defaults among them that users should see."""
        palette = defaults.palette(batch) if self.palette is None else self.palette
        none = self.surrogate is None and self.simulator is None
        gradients = None if none else gradient_filters(None, batch.bounds)
        open_ = self.palette is None or self.patch is None or self.channels is None  # filled options stay as they are
        whole = open_ and is_whole(make_palette(palette, batch, gradients))  # refuses an invalid palette early
        patch = batch.size if whole else defaults.patch(batch)
        usual = {"palette": palette, "patch": patch, "budget": defaults.BUDGETS[batch.kind]}
        defaulted: dict[str, Any] = {name: value for name, value in usual.items() if getattr(self, name) is None}
        goal = usual_goal(batch) if self.goal is None else self.goal
        goal = with_positions(goal, batch.classes) if isinstance(goal, str) else goal
        if self.goal is None and goal != str(Untargeted()):
            defaulted["goal"] = goal
        distance = self.distance or ("l2" if tuple(palette) == (PIXELS,) else defaults.DISTANCES[batch.kind])
        usual_channels = TOGETHER if whole else defaults.channels(batch)
        channels = usual_channels if self.channels is None else self.channels
        if self.channels is None and channels != TOGETHER:
            defaulted["channels"] = channels
        parse_channels(channels, batch.shape[0], batch.leads)  # refuses unknown channels early
        return self.model_copy(update=defaulted | {"goal": goal, "distance": distance, "channels": channels}), defaulted

    def build(self, batch: Samples) -> Attack:
        """Build the attack for data like this batch."""
        whole, _ = self.filled(batch)
        assert whole.palette is not None and whole.patch is not None  # noqa: PT018
        assert whole.budget is not None and whole.distance is not None and whole.goal is not None  # noqa: PT018
        simulator = whole.read_simulator()
        trusted = None if simulator is None or simulator.weak else simulator
        prior = whole._prior(batch, simulator)
        own = None if prior is None else gradient_filters(prior, batch.bounds)
        palette = make_palette(whole.palette, batch, own, whole.rounded(batch))
        beside = 2 * len(prior.surrogates if prior else ())
        entries = _ROOM + beside if isinstance(palette, FreePixels) else len(palette)
        chunk = defaults.chunk(batch, entries) if whole.chunk is None else whole.chunk
        defaults.check_room(batch, min(chunk, len(batch)), entries)
        grid = make_grid(batch, whole.patch, whole.channels)
        refuse_parts(palette, grid)
        if isinstance(palette, FreePixels) and UNTOUCHED in grid.channels:
            raise OptionError(f"the palette 'pixels' changes all channels, not only {whole.channels!r}: name them all")
        policy = whole._policy(batch, prior, isinstance(palette, FreePixels))
        return Attack(
            policy=policy,
            grid=grid,
            palette=palette,
            goal=parse_goal(whole.goal) if isinstance(whole.goal, str) else whole.goal,
            budget=whole.budget,
            accept=whole.accept,
            l2_penalty=whole.l2_penalty,
            cleanup=whole.cleanup,
            patience=whole.patience,
            chunk=chunk,
            paced=whole.chunk is None,
            label=label(whole.policy, policy, whole._helpers(trusted)),
            learned=None
            if simulator is None or whole.learning.stages
            else _learned(simulator, bool(whole.learning.queries)),
            seed=whole.seed,
            until=whole.until,
            distance=whole.distance,
            noisy=whole.noisy,
        )

    def rounded(self, batch: Samples) -> EightBit | None:
        """Return how inputs are rounded before the query, if they are."""
        return EightBit(batch.bounds) if self.quantize and batch.eight_bit else None

    def gradients(self, batch: Samples) -> dict[str, Filter]:
        """Return the filters that use the surrogates' gradients, by name."""
        prior = self._prior(batch, self.read_simulator()) if any(map(by_gradient, self.palette or ())) else None
        return {} if prior is None else gradient_filters(prior, batch.bounds)

    def _prior(self, batch: Samples, simulator: Simulator | None) -> SurrogatePrior | None:
        """Return the surrogates, and the students if they agree with the model often enough; None if there are none."""
        given = None if self.surrogate is None else load_surrogates(self.surrogate, batch)
        return given if simulator is None or simulator.weak else with_students(given, simulator, batch)

    def _policy(self, batch: Samples, prior: SurrogatePrior | None, whole: bool) -> Policy[Any]:
        """Return the policy for this data; `whole` says whether the palette is free pixels."""
        if whole:
            policy = resolve_pixels(self.policy, batch.shape, prior, Values(batch.bounds, self.rounded(batch)))
            if self.distance not in (None, "l2"):
                raise OptionError(f"the palette 'pixels' minimises L2: leave out the distance {self.distance!r}")
            return policy
        stepped = any(map(by_gradient, self.palette or ()))
        return resolve(self.policy, batch.shape, prior, self.surrogate is not None, stepped)

    def _helpers(self, simulator: Simulator | None) -> str:
        """Return the surrogates and the students in words."""
        helpers = [] if self.surrogate is None else [f"surrogates {', '.join(map(surrogate_name, self.surrogate))}"]
        return " and ".join(helpers + ([] if simulator is None else [f"{len(simulator.students)} students"]))


class RunOptions(AttackOptions):
    """An attack with its model and data, as in a configuration file."""

    model: ModelOptions
    data: DataOptions
    keep: Keep = Field(
        "everything",
        description="inputs to store: everything, flips, or assignments, from which they can be rebuilt (default: everything)",
    )

    def suited_data(self) -> DataOptions:
        """Return the data with one label per sample, or several, as the model and the goal have."""
        goal = parse_goal(with_positions(self.goal, None)) if isinstance(self.goal, str) else self.goal
        return self.data.suited(self.model.multilabel or (goal is not None and goal.multilabel))

    def attack_options(self) -> AttackOptions:
        """Return the options that every command shares."""
        return AttackOptions(**{name: getattr(self, name) for name in AttackOptions.model_fields})


class SharedAttackOptions(WorkerOptions, AttackOptions):
    """Options of `rlab.attack`: an attack and its workers."""


class SharedRunOptions(WorkerOptions, RunOptions):
    """Options of `rlab attack`: an attack, its workers, model and data."""


def make_attack(batch: Samples, **options: Any) -> Attack:
    """Build an attack for data like this batch; the options are the fields of `AttackOptions`."""
    return check(AttackOptions, options, "the attack's options").build(batch)


def usual_goal(batch: Samples) -> str:
    """The goal for data like these, if the user names none; with several labels per sample, any of them may flip."""
    return str(MultiLabel()) if batch.target == "classes" and batch.y.dim() > 1 else USUAL[batch.target]


def _learned(simulator: Simulator, here: bool) -> Learned:
    card = simulator.card
    return Learned(len(card.students), card.answers, card.agreement, card.queries, here, not simulator.weak)
