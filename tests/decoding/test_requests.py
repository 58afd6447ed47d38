"""Requests that no engine can decode are refused with one sentence."""

import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.requests import MAX_BEAM_SIZE, MAX_ROWS, Constraints, Request, check_request
from clearhead.errors import DecodingError


def check(request: Request, settings: DecodingConfig) -> None:
    check_request(7, request, settings, max_positions=97, vocab_size=11)


def test_a_beam_has_at_most_4096_hypotheses() -> None:
    check(Request((5, 3), n_best=MAX_BEAM_SIZE), DecodingConfig(beam_size=MAX_BEAM_SIZE))
    with pytest.raises(DecodingError, match=r"decoding.beam_size=4097 is too large; expected 1 to 4,096\."):
        check(Request((5, 3)), DecodingConfig(beam_size=MAX_BEAM_SIZE + 1))


def test_a_sentence_has_at_most_65535_samples() -> None:
    settings = DecodingConfig(method="sample")
    check(Request((5, 3), n_best=MAX_ROWS), settings)
    with pytest.raises(DecodingError, match="sentence 7 asks for 65,536 samples; expected at most 65,535"):
        check(Request((5, 3), n_best=MAX_ROWS + 1), settings)


def test_words_to_include_multiply_the_beam() -> None:
    def including(tokens: int) -> Request:
        return Request((5, 3), constraints=Constraints(include=LexicalConstraints(((4,) * tokens,))))

    check(including(14), DecodingConfig(beam_size=MAX_BEAM_SIZE))
    with pytest.raises(DecodingError, match="of 15 tokens, which takes 16 beams of 4096; expected at most 65,535"):
        check(including(15), DecodingConfig(beam_size=MAX_BEAM_SIZE))
