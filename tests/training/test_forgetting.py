"""Fine-tuning: saved validation records, scores before and after, replay of earlier data, and refused options."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from clearhead.config import merge
from clearhead.data.readers.record_files import format_files, sample_records
from clearhead.errors import ClearheadError, ConfigError
from clearhead.tasks.registry import get_task
from clearhead.tasks.trainable.records import TrainingFiles
from clearhead.training.run import TrainRequest, prepare, train
from tests.tasks.artificial_text import write_lines
from tests.training.runs import MORE, RecordingCallback, Settings, model_of, run, settings_of, traces, write_data

pytestmark = pytest.mark.forks
TEXT = [task for task in MORE if task not in ("image", "caption")]
QUICK = ("translate", "lm")
ALL_LINES: Settings = {"training": {"validate_lines": 50}}


class OldRuns:
    """Short run of each task next to its data, trained on first access; tests must not write into the folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, task: str) -> Path:
        out = self.folder / task / "old"
        if not out.exists():
            run(task, write_data(task, out.parent), out)
        return out


@pytest.fixture(scope="module")
def old_runs(tmp_path_factory: pytest.TempPathFactory) -> OldRuns:
    """Return a short run of each task."""
    return OldRuns(tmp_path_factory.mktemp("olds"))


def validation_files(old: Path) -> list[Path]:
    """Return the files with the validation records of a run."""
    return sorted((old / "training" / "validation").glob("*"))


def old_data(task: str, old: Path) -> Path:
    """Return the training data of an old run."""
    return write_data(task, old.parent)


@pytest.mark.parametrize("task", TEXT)
def test_a_run_saves_its_validation_records_in_files_that_its_task_reads(task: str, old_runs: OldRuns) -> None:
    old, config = old_runs[task], clearhead.load(old_runs[task]).config
    files = TrainingFiles([old_data(task, old)])
    held_out = get_task(task).load_records(files, config, lambda _: None).valid
    read = (
        get_task(task)
        .load_records(TrainingFiles(validation_files(old), validation_files(old), minimum=1), config, lambda _: None)
        .valid
    )
    assert [record.fields for record in read] == [record.fields for record in held_out]
    assert len(read) == read_manifest(old).data["valid_examples"] or task in ("mlm", "denoise")
    assert clearhead.evaluate(old, validation_files(old)[0]).to_json()


def test_at_most_500_evenly_spaced_records_are_saved(tmp_path: Path) -> None:
    from clearhead.data.readers.documents import Document
    from clearhead.data.readers.pairs import Pair

    pairs = [Pair(f"s{number}", f"t{number}", number) for number in range(1700)]
    chosen = sample_records(pairs)
    assert len(chosen) == 500 and chosen == sample_records(pairs)
    gaps = {after.line - before.line for before, after in pairwise(chosen)}
    assert gaps == {3, 4} and chosen[0].line == 0 and chosen[-1].line >= 1696
    assert sample_records(pairs[:7]) == pairs[:7] and sample_records([]) == []
    documents = [Document("x" * 300_000, 1), Document("y" * 300_000, 2), Document("z", 3)]
    assert [document.line for document in sample_records(documents)] == [1, 3]
    [cut] = sample_records([Document("w" * 900_000, 1)])
    assert len(cut.text) == 500_000


def test_saved_records_preserve_odd_characters(tmp_path: Path) -> None:
    from clearhead.data.readers.labelled import TaggedSentence, load_tagged
    from clearhead.data.readers.pairs import Pair, load_pairs

    pairs = [Pair('a "quoted"\ttab', "line\u2028separator \\n", 1), Pair("ä", "\U0001f600", 2)]
    tagged = [TaggedSentence(("#", "a b", "C"), ("O", "B-X", "I-X"), 1), TaggedSentence(("=", "d"), ("O", "O"), 5)]
    for records, load in ((pairs, load_pairs), (tagged, load_tagged)):
        [(name, text)] = format_files(records).items()
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert [record.fields for record in load([tmp_path / name]).records] == [record.fields for record in records]


def test_records_of_a_model_with_tags_are_saved_by_tag_and_scored_with_it(tmp_path: Path) -> None:
    first, second = write_data("translate", tmp_path / "a"), write_data("translate", tmp_path / "b", count=37)
    files = [Path(f"{first}@de"), Path(f"{second}@fr")]
    run("translate", files, tmp_path / "old", more=ALL_LINES)
    assert [path.name for path in validation_files(tmp_path / "old")] == ["de.jsonl", "fr.jsonl"]
    run("translate", [Path(f"{first}@de")], tmp_path / "new", more=ALL_LINES, start=tmp_path / "old")
    old, new = (read_manifest(tmp_path / name).training for name in ("old", "new"))
    assert new["old_validation"]["before"] == score(old)  # type: ignore[index,call-overload]
    with pytest.raises(ConfigError, match=r"was trained with tags; give --old-valid a tag, such as .*@de"):
        run("translate", files[:1], tmp_path / "no", start=tmp_path / "old", old_valid=[first])


def test_saved_records_are_not_exported_and_the_model_does_not_need_them(
    old_runs: OldRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = shutil.copytree(old_runs["translate"], tmp_path / "old")
    secret = json.loads(lines(validation_files(old)[0])[0])["source"]
    assert main(["export", str(old), "--to", "ctranslate2", str(tmp_path / "out")]) == 0
    exported = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert exported and not [path for path in exported if secret.encode() in path.read_bytes()]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name in ("training", "validation")]
    validation_files(old)[0].write_text("damaged")
    assert model_of(old) == model_of(old_runs["translate"]) and clearhead.load(old)
    shutil.rmtree(old / "training")
    assert clearhead.load(old)


def score(training: Any) -> float:
    """Return the validation score in a manifest."""
    [value] = [
        value["score"] for value in training["scores"].values() if isinstance(value, dict) and "signature" in value
    ]
    return float(value)


def test_scores_before_and_after_are_those_of_the_runs_themselves(tmp_path: Path) -> None:
    """The new run validates on the same records, so the validation scores of both runs are the reference."""
    data = write_data("translate", tmp_path)
    run("translate", data, tmp_path / "old", more=ALL_LINES, steps=120)
    copied = write_lines(
        tmp_path / "copy.tsv", [line.split("\t")[0] + "\t" + line.split("\t")[0] for line in lines(data)]
    )
    settings: dict[str, Any] = settings_of("translate", ALL_LINES)
    settings["training"] |= {"steps": 13}
    del settings["data"]["validation_share"], settings["tokenizer"]
    callback, valid = RecordingCallback(), validation_files(tmp_path / "old")
    request = TrainRequest([copied], tmp_path / "new", valid, settings=settings, threads=1, start=tmp_path / "old")
    train(request, callback)
    old, new = (read_manifest(tmp_path / name).training for name in ("old", "new"))
    report: Any = new["old_validation"]
    before, after = report["before"], report["after"]
    assert before == score(old) > 1 and after == score(new) != score(old)
    assert report["change"] == after - before and report["records"] == len(lines(valid[0]))
    shown = f"BLEU {before:.1f} before, {after:.1f} after ({after - before:+.1f})"
    assert f"old validation set ({report['records']} pairs): {shown}" in callback.messages
    assert f"bleu {before:.2f} before, {after:.2f} after" in (tmp_path / "new" / "README.md").read_text()


def lines(path: Path) -> list[str]:
    """Return the lines of a text file."""
    return path.read_text(encoding="utf-8").splitlines()


def test_forgetting_of_a_classifier_is_reported_and_evaluate_agrees(old_runs: OldRuns, tmp_path: Path) -> None:
    """The model is fine-tuned on labels that contradict the old ones; the reference is `clearhead evaluate`."""
    data = old_data("classify", old_runs["classify"])
    learned: Settings = {"training": {"validate_every": 40, "save_every": 40}}
    run("classify", data, tmp_path / "old", more=learned, steps=120)
    turn = {"eats": "cuts", "cuts": "Look", "Look": "eats"}
    rows = [line.split("\t") for line in lines(data)]
    other = write_lines(tmp_path / "other.tsv", [f"{text}\t{turn[label]}" for text, label in rows])
    callback = RecordingCallback()
    run("classify", other, tmp_path / "new", callback, more=learned, steps=120, start=tmp_path / "old")
    file = validation_files(tmp_path / "old")[0]
    expected = [
        100 * clearhead.evaluate(tmp_path / name, file).to_json()["accuracy"]["score"] for name in ("old", "new")
    ]
    report: Any = read_manifest(tmp_path / "new").training["old_validation"]
    assert [report["before"], report["after"]] == pytest.approx(expected) and report["change"] < -50
    [warning] = [text for text in callback.messages if text.startswith("warning: the model forgot")]
    assert "--replay FILE" in warning
    callback, little = RecordingCallback(), merge(learned, {"data": {"replay_share": 0.01}})
    run("classify", other, tmp_path / "little", callback, more=little, steps=120, start=tmp_path / "old", replay=[data])
    assert [text for text in callback.messages if text.startswith("warning: ") and "a higher --replay-share" in text]
    callback = RecordingCallback()
    run("classify", data, tmp_path / "same", callback, more=learned, start=tmp_path / "old", old_valid=[data])
    assert not [text for text in callback.messages if text.startswith("warning")]
    assert [text for text in callback.messages if text.startswith("old validation set (60 labelled texts): accuracy")]


def test_unmeasured_forgetting_is_reported_with_the_reason(old_runs: OldRuns, tmp_path: Path) -> None:
    bare = shutil.copytree(old_runs["lm"], tmp_path / "bare")
    shutil.rmtree(bare / "training")
    damaged = shutil.copytree(old_runs["translate"], tmp_path / "damaged")
    validation_files(damaged)[0].write_text("{}\n")
    four = write_lines(tmp_path / "four.tsv", [f"The old cow {n} eats\t{n % 4}" for n in range(40)])
    for task, start, data, message in (
        ("lm", bare, None, f"{bare} has no validation records; add --old-valid FILE"),
        ("translate", damaged, None, 'records.jsonl:1: expected the key "source"'),
        ("classify", old_runs["mlm"], None, "trained for the task mlm, this run is for classify"),
        ("classify", old_runs["classify"], four, "the labels of the new data are not those of the old model"),
        (
            "image",
            old_runs["image"],
            None,
            "the task image reads images, and runs save validation records of text only",
        ),
    ):
        callback, out = RecordingCallback(), tmp_path / f"{task}-{start.name}-{data is None}"
        settings = without_shape(task)
        files = [data or old_data(task, old_runs[task])]
        train(TrainRequest(files, out, settings=settings, task=task, threads=1, start=start), callback)
        [reason] = [text for text in callback.messages if text.startswith("forgetting is not measured: ")]
        assert message in reason and "old_validation" not in read_manifest(out).training


def without_shape(task: str) -> dict[str, Any]:
    """Return settings of a short run whose shape comes from another model."""
    settings: dict[str, Any] = settings_of(task)
    settings.pop("tokenizer", None)
    settings.pop("model")
    return {**settings, "training": {**settings["training"], "steps": 2, "warmup": 1}}


@pytest.mark.parametrize(
    "task", [task if task in QUICK else pytest.param(task, marks=pytest.mark.slow) for task in MORE]
)
def test_replay_of_every_task_resumes_to_the_same_bytes(task: str, old_runs: OldRuns, tmp_path: Path) -> None:
    """The old model is not needed to resume, because its validation records are copied."""
    new = write_data(task, tmp_path, count=43)
    options: dict[str, Any] = {"replay": [old_data(task, old_runs[task])], "more": {"data": {"replay_share": 0.4}}}
    start = shutil.copytree(old_runs[task], tmp_path / "start")
    callback = RecordingCallback()
    run(task, new, tmp_path / "whole", callback, start=start, **options)
    assert [text for text in callback.messages if text.startswith("replay: ") and "40 % of each batch" in text]
    assert (
        run(task, new, tmp_path / "parts", RecordingCallback(5), start=start, **options).outcome.reason == "interrupted"
    )
    shutil.rmtree(start)
    assert run(task, new, tmp_path / "parts", resume=True, **options).outcome.reason == "finished"
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")
    manifests = [read_manifest(tmp_path / name) for name in ("whole", "parts")]
    assert manifests[0].training.get("old_validation") == manifests[1].training.get("old_validation")
    assert (task in TEXT) == ("old_validation" in manifests[1].training)
    assert manifests[0].data == manifests[1].data and manifests[0].data["replay_examples"]
    run(task, new, tmp_path / "without", start=old_runs[task])
    assert model_of(tmp_path / "without") != model_of(tmp_path / "whole")


def test_records_of_validation_sets_are_not_replayed(old_runs: OldRuns, tmp_path: Path) -> None:
    """The old training file is replayed except for the part that the old run held out."""
    old = old_runs["translate"]
    new = write_lines(tmp_path / "new.tsv", [f"w{number} x y\tz w{number}" for number in range(30)])
    callback = RecordingCallback()
    request = TrainRequest(
        [new], tmp_path / "out", settings=without_shape("translate"), task="translate", threads=1, start=old,
        replay=[old_data("translate", old)],
    )  # fmt: skip
    prepared = prepare(request, callback)
    count = len(lines(validation_files(old)[0]))
    assert prepared.data["replay_examples"] == 60 - count
    assert [text for text in callback.messages if f"{count} are in a validation set and excluded" in text]


def test_a_resumed_run_refuses_other_files(old_runs: OldRuns, tmp_path: Path) -> None:
    old, data = old_runs["classify"], write_data("classify", tmp_path, count=43)
    replayed = old_data("classify", old)
    valid = write_lines(tmp_path / "valid.tsv", lines(replayed)[:20])
    options: dict[str, Any] = {"start": old, "replay": [replayed], "old_valid": [valid]}
    run("classify", data, tmp_path / "out", RecordingCallback(5), **options)
    other = write_data("classify", tmp_path / "other", count=50)
    for changed, message in (
        ({"replay": [other]}, "the files of --replay changed"),
        ({"replay": []}, r"replays labels\.tsv; give --replay again"),
        ({"old_valid": [other]}, "the files of --old-valid changed"),
        ({"more": {"data": {"replay_share": 0.3}}}, r"data\.replay_share was 0\.2, is 0\.3"),
    ):
        with pytest.raises(ClearheadError, match=message):
            run("classify", data, tmp_path / "out", resume=True, **{**options, **changed})
    shutil.rmtree(tmp_path / "out" / "training" / "old_validation")
    with pytest.raises(ClearheadError, match="old_validation was changed; restore it"):
        run("classify", data, tmp_path / "out", resume=True, **options)
    run("classify", data, tmp_path / "plain", RecordingCallback(5))
    with pytest.raises(ClearheadError, match="started without --replay"):
        run("classify", data, tmp_path / "plain", resume=True, replay=[replayed])


def test_misuse_is_refused_in_a_sentence(old_runs: OldRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, image = str(old_runs["classify"]), str(old_runs["image"])
    data = str(old_data("classify", old_runs["classify"]))
    image_data = str(old_data("image", old_runs["image"]))
    for task, more, message in (
        ("classify", ["--replay", data], "--replay is for fine-tuning; name the old model with --from DIR"),
        ("classify", ["--old-valid", data], "--old-valid is for fine-tuning"),
        ("classify", ["--from", old, "--replay-share", "0.3"], "has no effect without --replay FILE"),
        *(
            ("classify", ["--from", old, "--replay", data, "--replay-share", share], "data.replay_share")
            for share in ("0", "1", "-0.5", "nan")
        ),
        ("classify", ["--from", old, "--replay", f"{data}:2"], "--replay files cannot have a weight"),
        ("classify", ["--from", old, "--replay", f"{tmp_path}/none.tsv"], "none.tsv: no such file"),
        (
            "classify",
            ["--from", str(old_runs["mlm"]), "--old-valid", data],
            "trained for the task mlm, this run is for",
        ),
        (
            "image",
            ["--from", image, "--old-valid", image_data],
            "reads images, and runs save validation records of text only; leave",
        ),
    ):
        files = image_data if task == "image" else data
        code = main(["train", files, "--task", task, "--out", str(tmp_path / "out"), "--steps", "1", *more])
        error = capsys.readouterr().err.splitlines()[-1]
        assert code == 2 and error.startswith("clearhead: ") and message in error, error
        assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_the_python_interface_takes_the_same_options(old_runs: OldRuns, tmp_path: Path) -> None:
    data = old_data("translate", old_runs["translate"])
    valid = write_lines(tmp_path / "valid.tsv", lines(data)[:20])
    model = clearhead.train(
        data, tmp_path / "out", start=old_runs["translate"], old_valid=valid, replay=data, replay_share=0.25, steps=1,
        threads=1,
    )  # fmt: skip
    assert model.config.data.replay_share == 0.25
    assert model.manifest.training["old_validation"]["records"] == 20  # type: ignore[index,call-overload]


def test_two_line_files_can_be_replayed(old_runs: OldRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = old_data("translate", old_runs["translate"])
    rows = [line.split("\t") for line in lines(data)]
    for name, chosen in (("a", rows), ("v", rows[:20])):
        for number, side in enumerate(("en", "de")):
            write_lines(tmp_path / f"{name}.{side}", [row[number] for row in chosen])
    replayed, valid = ([f"{tmp_path}/{name}.{side}" for side in ("en", "de")] for name in ("a", "v"))
    options = ["--replay", *replayed, "--old-valid", *valid, "--steps", "1", "--threads", "1"]
    code = main(["train", str(data), "--from", str(old_runs["translate"]), "--out", str(tmp_path / "out"), *options])
    assert code == 0 and "old validation set (20 pairs)" in capsys.readouterr().err


def test_records_are_saved_under_their_own_column_names(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in lines(write_data("classify", tmp_path))]
    table = write_lines(tmp_path / "t.csv", ["stars,review", *(f'{label},"{text}"' for text, label in rows)])
    more: Settings = {"data": {"columns": "text=review,label=stars"}}
    run("classify", table, tmp_path / "old", more=more)
    callback = RecordingCallback()
    run("classify", table, tmp_path / "new", callback, more=more, start=tmp_path / "old", replay=[table])
    assert not [text for text in callback.messages if "not measured" in text]
    assert read_manifest(tmp_path / "new").training["old_validation"]


def test_labels_of_replayed_records_keep_the_output_layer(old_runs: OldRuns, tmp_path: Path) -> None:
    """The new file has two of the three labels; without replay its output layer would be new."""
    old, replayed = old_runs["classify"], old_data("classify", old_runs["classify"])
    some = write_lines(tmp_path / "some.tsv", [line for line in lines(replayed) if not line.endswith("\tLook")])
    for replay, fresh in (([], "output.weight, output.bias"), ([replayed], "none")):
        callback = RecordingCallback()
        request = TrainRequest(
            [some], tmp_path / "out", settings=without_shape("classify"), task="classify", start=old, replay=replay
        )
        prepared = prepare(request, callback)
        assert [text for text in callback.messages if text.endswith(f"newly initialized: {fresh}")]
        assert prepared.config.labels == (("Look", "cuts", "eats") if replay else ("cuts", "eats"))
