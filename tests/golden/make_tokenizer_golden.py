#!/usr/bin/env python3
"""Remakes tests/framework/data/golden: small tokenizers, three of byte-level BPE and four of BPE over characters with
byte_fallback, and what `tokenizers` makes of some texts.

Needs the Python package `tokenizers`; the files are of 0.23.3:   python3 tests/golden/make_tokenizer_golden.py
The tests themselves need only the files it writes.
"""

import itertools
import json
import pathlib
import random

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

OUT = pathlib.Path(__file__).resolve().parent.parent / "framework/data/golden"

# Llama 3's split (its tokenizer.json).
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# GPT-4o's and gpt-oss' split: words also end where lower case is followed by upper case.
O200K_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# In the order of their ids, which are the last of the vocabulary.
HARMONY_TOKENS = [
    f"<|{name}|>"
    for name in (
        "startoftext", "endoftext", "reserved_200000", "reserved_200001", "return", "constrain", "reserved_200004",
        "channel", "start", "end", "message", "reserved_200009", "reserved_200010", "reserved_200011", "call",
        *(f"reserved_{number}" for number in range(200013, 200018)), "endofprompt",
    )
]  # fmt: skip

SENTENCES = """
A worker that dies is replaced, and the run goes on from the last committed step.
The gradient of a step is the sum over its microbatches, in one fixed order.
We'll see that it isn't slower; they've measured it, I'm sure, and you'd better believe what she's said.
Every token of the training stream is a pure function of the seed and its position.
In 2024 there were 1234567 samples in 128 files of 65536 tokens, about 3.14159 per second.
for (int i = 0; i < count; ++i) {\n    sum += weights[i] * inputs[i];\n}\n
def forward(self, x):\n\treturn self.norm(x + self.attention(x))\n
Größe und Höhe ändern sich übermäßig, wenn die Straße naß ist.
L'été dernier, où étiez-vous ? Ça dépend : déjà-vu, naïveté, cœur, garçon.
El niño pequeño comió piñas mañana; ¿quién lo diría? ¡Qué lástima!
Скорость обучения зависит от размера пакета и от числа шагов.
Η ταχύτητα εξαρτάται από το μέγεθος της δέσμης.
学习率取决于批量大小和训练步数。模型的损失在每一步都完全相同。
学習率はバッチサイズとステップ数によって決まります。ロスは毎回同じです。
학습률은 배치 크기와 단계 수에 따라 달라집니다.
السرعة تعتمد على حجم الدفعة وعدد الخطوات
गति बैच के आकार और चरणों की संख्या पर निर्भर करती है।
😀 😃 👍🏽 👩‍👩‍👧‍👦 🇩🇪 🇯🇵 ❤️ ✨
""".strip().split("\n")

CASES = [
    "",
    " ",
    "a",
    "Hello world",
    " leading and trailing ",
    "two  spaces   three    four",
    "tabs\tand\t\tmore \t mixed\n",
    "lines\n\nand\r\nmore\r\n\r\n  indented\n\n\n   \n",
    "trailing spaces at the end   ",
    "   ",
    "\n\n\n",
    "it's they're we've I'm you'll he'd don't IT'S THEY'RE WE'VE I'M YOU'LL HE'D",
    "'s 's's 'S ''s 'ſ",
    "0 1 12 123 1234 12345 1234567890 3.14 1,000,000 ½ Ⅷ ٣٤٥ ²",
    "foo123bar 4x4 x86-64-v3",
    "!?... ,,, ((a)) --flag=value a.b.c /usr/bin:/bin #hash @at $5 50%",
    "snake_case CamelCase kebab-case UPPER lower",
    "Größe naïve cœur déjà-vu",
    "e\u0301 o\u0308 n\u0303 a\u0300\u0301\u0302 \u0301alone",
    "Скорость обучения Η ταχύτητα",
    "学习率取决于批量大小。 学習率は、ロスは毎回同じ 학습률은",
    "السرعة تعتمد गति बैच के",
    "😀 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ mixed😀with👍text",
    "nbsp\u00a0nel\u0085zwsp\u200bem\u2003ideographic\u3000line\u2028para\u2029mvs\u180eend",
    "\u0000\u0001\u007f control",
    "\ufeffBOM \ufffd replacement \U0010ffff last \ud7ff \ue000 private",
    "<|endoftext|>",
    "before<|endoftext|>after",
    "a <|endoftext|> b<|endoftext|><|endoftext|> c",
    "<|endoftext| > <|endoftext <|end <|pad|> <|pad|>x<|padding|>y <|pad",
    "word addedword readdedwords addedwordaddedword",
    "z zz zzz zzzz zzzzz zzzzzz zzzzzzz zzzzzzzzz zzzzzzzzzzz",
    "added addedwo addedword readdedword addedadded",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x" * 300 + " " * 200 + "y" + "\n" * 50 + "。" * 100,
] + SENTENCES

# What is particular to BPE over characters: spaces, their sign, and tokens that take white space or stand alone.
METASPACE_CASES = [
    "\u2581",
    "\u2581a \u2581 a\u2581b",
    " \u2581 \u2581\u2581  the",
    "the<|right|>   the<|right|>\n\tthe<|right|>",
    "the   <|left|>the \n\t<|left|> <|left|>",
    "<|right|>  <|left|>  <|right|> \u3000\u2003the",
    "<|both|> a <|both|>  <|both|>b\u00a0<|both|>",
    "<|word|> a<|word|> <|word|>b é<|word|> -<|word|>- _<|word|> 学<|word|> \u0301<|word|> <|word|>\u200d <|word|>½",
    "<|word|><|word|> <|word|>",
    "<s>the</s><s> the </s> <unk><0x41><0x0A>",
    "\x00\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff",
    "🜁🜂 🜃the",
]

# What is particular to GPT-4o's split: letters by their case, marks, contractions behind words, slashes behind signs.
O200K_CASES = [
    "HTTPServer iPhone XMLHttpRequest McDonald's IT'S don'T DON'T WE'LL'VE 'S Ab'sC aB'Ll",
    "\u01c5a \u01c5A a\u01c5 A\u01c5\u01c5b \u02b0A A\u02b0 a\u02b0A \u00aaA\u00ba \u0641A A\u0641a \u4e2dA\u4e2da",
    "\u0301a \u0301A a\u0301A A\u0301a .\u0301a \n\u0301 \u20dd\u0903A\u0903 1\u0301a",
    "a/\n/b !/\n/\r\n/x //\n \n/\n ./a -A -a _aB \u00a0Ab \tAb \u3000aB\u3000",
    "it\u2019s IT\u2019S a'\u017f A'\u017fa x'RE'Ve'M'D 's't",
    "<|start|>assistant<|channel|>final<|message|>It's HERE<|end|><|return|><|call|><|startoftext|>",
    "<|reserved_200013|><|reserved_200018|> <|reserved_20001 <|endofprompt|>A<|reserved_200017|>b<|channel|",
    "A" * 300 + "a" * 300 + "Aa" * 100 + "\u4e2dA" * 100 + "\u0301" * 100,
]

ALPHABET = "aAbest'sſ019²½ \t\n\r\u00a0\u0085\u180e\u3000.,!_-/äßЖ学の한ع\u0301\u200d😀👍<|>"


METASPACE_PIECES = [*ALPHABET, " ", " ", "\u2581", "the", " step", "added", "addedword", "</s>"] + [
    f"<|{name}|>" for name in ("right", "left", "both", "word")
]


O200K_PIECES = [*ALPHABET, *"ABCabc\u01c5\u02b0\u00aa\u0903\u20dd", "'s", "'S", "'Re", "'lL", "/", "\n", *HARMONY_TOKENS]


def random_cases(count, pieces=ALPHABET):
    generator = random.Random(7)
    for _ in range(count):
        yield "".join(generator.choice(pieces) for _ in range(generator.randrange(1, 60)))


def corpus():
    """Sentences and their words in all orders: enough repetition for merges several levels deep."""
    words = [word for sentence in SENTENCES for word in sentence.split(" ")]
    generator = random.Random(1)
    # Runs of one letter: a pair that overlaps itself shows which end is merged first.
    yield from itertools.repeat("zz zzz zz zzz", 500)
    for _ in range(200):
        generator.shuffle(words)
        yield " ".join(words)
    yield from itertools.chain.from_iterable(itertools.repeat(SENTENCES, 50))


def train(pre_tokenizer, vocab_size, texts=None, **more):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False, **more)
    tokenizer.train_from_iterator(corpus() if texts is None else texts, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|pad|>", "<|padding|>"])
    # One begins the other, the short one first: the longest must win.
    tokenizer.add_tokens([AddedToken("added", normalized=True), AddedToken("addedword", normalized=True)])
    return tokenizer


def save(tokenizer, name, edit, more=()):
    """Saves `tokenizer`, changed by `edit`, and the ids of every case, `more` beside those that all have."""
    content = json.loads(tokenizer.to_str())
    edit(content)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (OUT / f"tokenizer_{name}.json").write_text(text + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_str(text)
    cases = []
    for case in itertools.chain(CASES, random_cases(150), more):
        ids = tokenizer.encode(case, add_special_tokens=False).ids
        cases.append({"text": case, "ids": ids})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUT / f"cases_{name}.json").write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"{name}: vocabulary {tokenizer.get_vocab_size()}, {len(cases)} cases")


def gpt2_style(content):
    # As GPT-2's own file: merges as one string each.
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]


def llama3_style(content):
    # Whole words win over merges: without the merges of the last tokens only `ignore_merges` can make them.
    content["model"]["ignore_merges"] = True
    content["model"]["merges"] = content["model"]["merges"][:-100]


def gpt_oss_style(content):
    """As transformers converts tiktoken's files: every pair of tokens that make one is a merge of it, in the order of the
    tokens, and whole words win."""
    vocab = content["model"]["vocab"]
    merges = []
    for token in sorted(vocab, key=vocab.get):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    content["model"]["merges"] = merges
    content["model"]["ignore_merges"] = True


def byte_level_split(expression):
    split = pre_tokenizers.Split(Regex(expression), behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train_metaspace(vocab_size, texts=None):
    """A model as SentencePiece trains it: <unk>, <s>, </s>, 256 bytes, runs of spaces, characters that are frequent, what
    merges make."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, limit_alphabet=120, show_progress=False)
    trained.train_from_iterator(corpus() if texts is None else texts, trainer)
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["\u2581" * 2, "\u2581" * 4, *sorted(model["vocab"], key=model["vocab"].get)]
    spaces = [("\u2581", "\u2581"), ("\u2581" * 2, "\u2581" * 2)]
    return {name: id for id, name in enumerate(names)}, spaces + [tuple(merge) for merge in model["merges"]]


def metaspace_tokenizer(normalizer, pre_tokenizer, trained, special=("<unk>", "<s>", "</s>"), strips=True):
    vocab, merges = trained
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * strips)
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def add_test_tokens(tokenizer):
    tokenizer.add_tokens([AddedToken("added", normalized=True), AddedToken("addedword", normalized=True)])
    tokenizer.add_tokens(
        [
            AddedToken("<|right|>", normalized=False, rstrip=True),
            AddedToken("<|left|>", normalized=False, lstrip=True),
            AddedToken("<|both|>", normalized=True, lstrip=True, rstrip=True),
            AddedToken("<|word|>", normalized=False, single_word=True),
        ]
    )
    return tokenizer


def metaspace_tokenizers(trained):
    """As Llama 2, Mistral v0.3, Gemma and T5 have them."""
    prepend = normalizers.Prepend("\u2581")
    replace = normalizers.Replace(" ", "\u2581")
    metaspace = pre_tokenizers.Metaspace
    return {
        "llama2_style": metaspace_tokenizer(normalizers.Sequence([prepend, replace]), None, trained),
        "mistral_style": metaspace_tokenizer(None, metaspace("\u2581", prepend_scheme="first", split=False), trained),
        "gemma_style": metaspace_tokenizer(
            replace, pre_tokenizers.Split(" ", "merged_with_previous"), trained, strips=False
        ),
        "split_style": metaspace_tokenizer(None, metaspace("\u2581", prepend_scheme="always", split=True), trained),
    }


def byte_ranges(text, offsets):
    starts = [0, *itertools.accumulate(len(character.encode()) for character in text)]
    return [[starts[begin], starts[end]] for begin, end in offsets]


def save_metaspace(tokenizer, name):
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (OUT / f"tokenizer_{name}.json").write_text(text + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_str(text)
    cases = []
    for case in itertools.chain(CASES, METASPACE_CASES, random_cases(100, METASPACE_PIECES)):
        encoded = tokenizer.encode(case, add_special_tokens=False)
        decoded = tokenizer.decode(encoded.ids, skip_special_tokens=False)
        ranges = byte_ranges(case, encoded.offsets)
        cases.append({"text": case, "ids": encoded.ids, "ranges": ranges, "decoded": decoded})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUT / f"cases_{name}.json").write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"{name}: vocabulary {tokenizer.get_vocab_size()}, {len(cases)} cases")


def decomposed_cases():
    """What Unicode's form C changes: letters with marks, marks in another order, Hangul in parts, signs that are others."""
    alphabet = ["e", "a", "A", " ", "\n", "\u0301", "\u0323", "\u0308", "\u1112", "\u1161", "\u11ab", "\u212b", "\u2126",
                "\u0915", "\u093c", "\u0958", "q\u0307\u0323", "<|pad|>", "added", "\u00e9", "\u4e2d", "\U0001f600"]
    random_source = random.Random(11)
    texts = ["caf\u0065\u0301", "\u0301", "e", "\u1112\u1161\u11ab\u1100\u1173\u11af", "A\u030a \u212b", ""]
    return texts + ["".join(random_source.choices(alphabet, k=random_source.randrange(1, 14))) for _ in range(300)]


def save_decomposed():
    """Only cases: the tokenizer is llama3_style's with the normalizer of Qwen's."""
    content = json.loads((OUT / "tokenizer_llama3_style.json").read_text(encoding="utf-8"))
    content["normalizer"] = {"type": "NFC"}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    cases = [{"text": case, "ids": tokenizer.encode(case, add_special_tokens=False).ids} for case in decomposed_cases()]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUT / "cases_nfc.json").write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"nfc: {len(cases)} cases")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    gpt2 = train(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), 1000)
    save(gpt2, "gpt2_style", gpt2_style)
    llama3 = train(byte_level_split(LLAMA3_SPLIT), 1100)
    llama3.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", llama3.token_to_id("<|endoftext|>"))]
    )
    save(llama3, "llama3_style", llama3_style)
    # Trained on texts that are not split, or no merge would show where a word ends.
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = [*O200K_CASES * 9, *random_cases(3000, O200K_PIECES[: -len(HARMONY_TOKENS)])]
    gpt_oss = train(whole, 1200, texts, max_token_length=4)
    gpt_oss.pre_tokenizer = byte_level_split(O200K_SPLIT)
    gpt_oss.add_special_tokens(HARMONY_TOKENS)
    gpt_oss.post_processor = processors.ByteLevel(trim_offsets=False)
    save(gpt_oss, "gpt_oss_style", gpt_oss_style, itertools.chain(O200K_CASES, random_cases(150, O200K_PIECES)))
    save_decomposed()
    for name, tokenizer in metaspace_tokenizers(train_metaspace(700)).items():
        save_metaspace(add_test_tokens(tokenizer), name)


if __name__ == "__main__":
    main()
