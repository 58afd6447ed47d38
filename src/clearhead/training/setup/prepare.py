"""Preparation of a run: data, task, model and settings before the first update, for new and for resumed runs."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.corpus.held_out import hash_fraction
from clearhead.data.readers.record_files import sample_records
from clearhead.data.records import Record, fingerprint_records
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import TrainingError
from clearhead.model.parameters import named_weights
from clearhead.model.registry import build_model
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log, Task
from clearhead.tasks.trainable.records import TaskRecords, TrainingFiles
from clearhead.tasks.trainable.replay import Replay, ReplayTask, prepare_task, read_replay
from clearhead.tasks.trainable.task import PreparedTask, TrainingTask
from clearhead.training.checkpoint.resume import OriginalRun, RestoredRun
from clearhead.training.checkpoint.run_folder import TRAINING
from clearhead.training.distributed.process_group import ProcessGroup
from clearhead.training.loop.callbacks import Callback
from clearhead.training.setup.auto_config import choose_config, default_epochs, without_zero_length
from clearhead.training.setup.finetune import PretrainedModel, tokenizer_from_text, tokenizer_to_text
from clearhead.training.setup.forgetting import OLD_VALIDATION, OldValidation, find_old_validation, old_valid_facts
from clearhead.training.setup.request import ResolvedRequest, check_ids, check_request

REPLAY_EXAMPLES = "replay_examples"


@dataclass(frozen=True)
class RunContext:
    """Request, callback and processes of a run."""

    request: ResolvedRequest
    callback: Callback
    group: ProcessGroup


@dataclass(frozen=True)
class RunData:
    """Records of a run, with their task."""

    task: Task
    records: TaskRecords[Any]
    replay: Replay | None
    facts: dict[str, Any]
    """Files and fingerprints for the manifest, which must be unchanged when the run is resumed."""


@dataclass(frozen=True)
class PreparedRun:
    """Run that is ready for its first update."""

    config: Config
    tokenizer: Tokenizer | None
    task: TrainingTask[Any]
    model: nn.Module
    data: dict[str, Any]
    """Facts about the data for the manifest."""
    reasons: list[str]
    """Reasons of the automatic choices."""
    threads: int
    pretrained: str
    """Fingerprint of the pretrained model, or empty."""
    validation: Sequence[Record]
    """Up to 500 validation records, saved for later fine-tuning."""
    default_epochs: int = 0
    """Number of epochs of a run without a length."""
    old: OldValidation | None = None
    """Validation set of the pretrained model."""

    def with_length(self, steps: int) -> "PreparedRun":
        """Return the run with `steps` as its number of updates."""
        return replace(self, config=configs.override(self.config, {"training": {"steps": steps}}))


def prepare_run(context: RunContext) -> PreparedRun:
    """Check the settings, read the data, make the automatic choices, and build the task and the model.

    Every process reads the data; rank 0 trains the tokenizer for all.
    """
    request, log = context.request, context.callback.message
    task = get_task(request.task or "translate")
    pretrained = PretrainedModel.load(request.options.start) if request.options.start else None
    base = pretrained.base(task) if pretrained else task.base
    draft = configs.build(request.settings, preset=request.preset, base=base)  # raises errors before the data is read
    check_request(request, task, draft)
    if pretrained:
        pretrained.check(draft)
    old = find_old_validation(pretrained, task.name, request.options.old_valid, log) if pretrained else None
    data = read_data(context, task, draft, old.hashes if old else frozenset(), log)
    config, reasons = _choose_config(request, data, draft, base, is_finetuning=pretrained is not None)
    prepared_task = _prepare_task(context, config, data, pretrained.tokenizer if pretrained else None)
    prepared = _build(context, data, prepared_task)
    if old:
        old.check_labels(prepared.config, bool(request.options.old_valid), log)
    if pretrained:
        pretrained.load_into(prepared.model, prepared.config, context.callback)
    context.group.copy_from_rank0(list(named_weights(prepared.model).values()))
    start = pretrained.fingerprint if pretrained else ""
    return replace(prepared, reasons=reasons, old=old, pretrained=start)


def _choose_config(
    request: ResolvedRequest, data: RunData, draft: Config, base: Mapping[str, Any], *, is_finetuning: bool
) -> tuple[Config, list[str]]:
    """Return the config with all automatic choices, and the reasons for these."""
    settings, has_text = without_zero_length(request.settings), draft.model.has_text
    amount, noun = data.records.size, data.task.record_name
    choice = choose_config(amount, noun, settings, request.preset, is_finetuning=is_finetuning, has_text=has_text)
    return configs.build(choice.settings, settings, preset=choice.preset, base=base), choice.reasons


def read_data(context: RunContext, task: Task, config: Config, old_hashes: Set[float], log: Log) -> RunData:
    """Read the training, validation and replay files; inputs with `old_hashes` are not replayed."""
    request, work = context.request, context.callback.work
    records = task.load_records(TrainingFiles(request.files, request.valid, work), config, log)
    replay = None
    if request.replay.files:
        hashes = old_hashes | {hash_fraction(record.fields[0].encode()) for record in records.valid}
        files = TrainingFiles(request.replay.files, work=work)
        replay = read_replay(task, files, request.replay.tags, config, hashes, log)
    facts = {
        "files": [path.name for path in request.files],
        "valid_files": [path.name for path in request.valid],
        "fingerprint": records.corpus.fingerprint,
        "valid_fingerprint": fingerprint_records(records.valid),
        "records": len(records.corpus.records),
        **(replay.facts(request.replay.files) if replay else {}),
        **old_valid_facts(request.options.old_valid),
    }
    return RunData(task, records, replay, facts)


def _prepare_task(context: RunContext, config: Config, data: RunData, tokenizer: Tokenizer | None) -> PreparedTask:
    """Return the task; if `tokenizer` is None, rank 0 trains one and sends it to the other processes."""
    group, log = context.group, context.callback.message
    if group.is_rank0:
        prepared = prepare_task(data.task, config, data.records, data.replay, tokenizer, log)
        group.broadcast_text(tokenizer_to_text(prepared.tokenizer))
        return prepared
    tokenizer = tokenizer_from_text(group.broadcast_text(""))
    return prepare_task(data.task, config, data.records, data.replay, tokenizer, log)


def _build(context: RunContext, data: RunData, prepared: PreparedTask) -> PreparedRun:
    """Build the model, and collect the facts for the manifest."""
    check_ids(prepared)
    config, task = prepared.config, prepared.task
    torch.manual_seed(config.training.seed)
    sizes = dict(zip(("train_examples", "valid_examples"), task.num_examples(), strict=True))
    if isinstance(task, ReplayTask):
        sizes[REPLAY_EXAMPLES] = task.old.num_examples()[0]
    tags = {"tags": sorted(set(config.data.source_tags))} if config.data.source_tags else {}
    skipped = dict(data.records.corpus.skips.counts)  # preparation skips examples too
    return PreparedRun(
        config=config,
        tokenizer=prepared.tokenizer,
        task=task,
        model=build_model(config.model),
        data={**data.facts, "skipped": skipped, **sizes, **tags, **config.data.language_settings(), **prepared.facts},
        reasons=[],
        threads=context.request.options.threads or context.group.default_threads(),
        pretrained="",
        validation=sample_records(data.records.valid),
        default_epochs=default_epochs(data.records.size),
    )


def prepare_resumed_run(context: RunContext, restored: RestoredRun) -> PreparedRun:
    """Return a saved run, prepared with its settings and tokenizer; raise an error if data or settings differ."""
    request, log = context.request, context.callback.message
    original = OriginalRun.load(request.out, restored)
    data = read_unchanged_data(context, original, restored.old_hashes, log)
    tokenizer = tokenizer_from_text(restored.tokenizer)
    prepared_task = prepare_task(data.task, restored.config, data.records, data.replay, tokenizer, log)
    assert prepared_task.config == restored.config, "the same data must result in the same config"
    prepared = _build(context, data, prepared_task)
    if prepared.data.get(REPLAY_EXAMPLES) != restored.origin.data.get(REPLAY_EXAMPLES):
        raise TrainingError(f"{request.out / TRAINING / OLD_VALIDATION} was changed; restore it, or start again")
    restored.warn_about_rounding(prepared.threads, context.group, context.callback)
    return replace(prepared, pretrained=restored.origin.pretrained, old=restored.old)


def read_unchanged_data(context: RunContext, original: OriginalRun, old_hashes: Set[float], log: Log) -> RunData:
    """Return the data; raise an error if it or the settings differ from those at the start of the run."""
    request = context.request
    original.check_settings(request.settings, request.preset, request.task)
    original.check_start(request.options.start)
    data = read_data(context, get_task(original.config.task), original.config, old_hashes, log)
    original.check_data(data.facts)
    return data
