"""Which heads find what a pronoun stands for? Score every head on a few annotated texts, beside simple rules.

With so few texts the best head is partly luck: attnviz coref MODEL FOLDER does the same on whole corpora.

    python examples/coreference_heads.py
"""

import attnviz
from attnviz.analysis.coreference import Coreference, coreference
from attnviz.analysis.readers import brackets

TEXTS = [
    "[The doctor]1 told [her patient]2 that [she]1 would call [him]2 when [the results]3 came, as [they]3 were late.",
    "[Anna]1 lent [the book]2 to [Paul]3. [He]3 read [it]2 in a night, and [she]1 was glad that [he]3 liked [it]2.",
    "[The keeper]1 repaired [the old pump]2. [It]2 sounded hollow, so [he]1 took [it]2 apart and cleaned [it]2.",
    "[The committee]1 praised [the engineers]2 because [they]2 had found [the fault]3 before [it]3 did any harm.",
]


def main() -> Coreference:
    model, tokenizer = attnviz.load_model("minilm")
    found = coreference([brackets(text, f"text {number}") for number, text in enumerate(TEXTS)], model, tokenizer)
    print("The best heads, choosing among all earlier mentions:")
    print(found.table("preceding mention").head(5).to_string())
    print("\nRules that know nothing about attention, on the same mentions:")
    print(found.baselines("preceding mention").to_string())
    return found


if __name__ == "__main__":
    main()
